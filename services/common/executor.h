// Executor runs functions some time later: on the threads of a WorkPool, or, in a simulation, as
// events of one thread.
//
// Thread-safety: Submit may be called from any thread.
#pragma once

#include <functional>

namespace weft {

class Executor {
 public:
  virtual ~Executor() = default;

  virtual void Submit(std::function<void()> work) = 0;
};

}  // namespace weft
