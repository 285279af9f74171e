// FaultProxy is a TCP proxy on this machine between a process and a server: it passes on what
// comes, until it is told to stall (nothing is read any more, connections stay) or to cut
// (connections are closed, new ones are taken).
//
// Thread-safety: all methods may be called from any thread. The thread is its own.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/mutex.h"

namespace weft::testing {

class FaultProxy {
 public:
  // Test failures say what went wrong.
  FaultProxy();
  ~FaultProxy();

  std::string address() const;  // 127.0.0.1:port
  // Where connections go to from now on, 127.0.0.1:port.
  void SetTarget(const std::string& address) ABSL_LOCKS_EXCLUDED(mu_);
  void Stall(bool stalled) ABSL_LOCKS_EXCLUDED(mu_);
  void Cut() ABSL_LOCKS_EXCLUDED(mu_);

  int64_t connections() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What came from one end and is to go to the other.
  struct Flow {
    std::vector<char> bytes;
    size_t sent = 0;
  };
  struct Connection {
    std::array<int, 2> ends = {-1, -1};  // who has called, and the target
    std::array<Flow, 2> from;
  };

  void Run();
  void Accept() ABSL_LOCKS_EXCLUDED(mu_);
  // False: it is over.
  bool Move(Connection* connection, int end, bool readable, bool writable) ABSL_LOCKS_EXCLUDED(mu_);
  void Wake();

  int listener_ = -1;
  std::array<int, 2> wake_ = {-1, -1};
  uint16_t port_ = 0;
  std::list<Connection> connections_;  // of the thread

  mutable Mutex mu_;
  uint16_t target_ ABSL_GUARDED_BY(mu_) = 0;
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;
  bool cut_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  int64_t accepted_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;

  std::thread thread_;
};

}  // namespace weft::testing
