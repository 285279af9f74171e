// Exchange is a session's exchange of parameters with the parameter servers: ParameterSync, driven
// as ClusterParamClient does with threads.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "services/common/run_fence.h"
#include "services/param_server/parameter_sync.h"
#include "tests/simulation/param_process.h"
#include "tests/simulation/process.h"

namespace weft::simulation {

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  using Done = std::function<void(const absl::Status&)>;

  // All must outlive the trainer's life.
  // `over`: the lock server has ended the session.
  Exchange(Process* trainer, RunFence* fence, ParameterSync* sync, ParamCaller caller,
           std::vector<ParamProcess*> servers, std::function<bool()> over);

  // Fetches all rows, then begins to exchange.
  void Join(Done done);
  // Aborted: begin a new session.
  void Flush(Done done);
  void BeginPass(int64_t pass) { pass_ = pass; }
  // The session is over: nothing further is sent.
  void End() { ended_ = true; }

 private:
  struct Server {
    ParamProcess* process = nullptr;
    int64_t flushed = 0;
    bool busy = false;
  };

  void JoinServer(size_t server, JoinRequest request, Done done);
  void RoundLater(size_t server);
  void Round(size_t server);
  void PushOnce(size_t server, bool flush, int64_t flush_number);
  void Fail(absl::Status status);
  void Notify();
  void SetTerm(ParamCaller* caller) const;

  Process* const trainer_;
  RunFence* const fence_;
  ParameterSync* const sync_;
  const ParamCaller caller_;
  std::vector<Server> servers_;
  const std::function<bool()> over_;
  int64_t pass_ = 0;
  int64_t flush_wanted_ = 0;
  absl::Status failure_;
  bool ended_ = false;
  std::vector<std::pair<int64_t, Done>> flushes_;
};

}  // namespace weft::simulation
