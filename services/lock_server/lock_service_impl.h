// LockServiceImpl answers LockService (proto/weft/v1/lock_service.proto) from a run.
//
// It translates; the run decides. Every call goes through the RunLoop: one thread makes the
// changes, answers leave when they are durable, calls that wait hold no thread.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "services/common/clock.h"
#include "services/lock_server/run_coordinator.h"
#include "services/lock_server/run_loop.h"
#include "weft/v1/lock_service.grpc.pb.h"

namespace weft {

class LockServiceImpl : public v1::LockService::CallbackService {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(30);
    // Servers that wait longer would seem silent.
    absl::Duration max_wait = absl::Seconds(10);
    // A later life of the run was met; called on the loop's thread after the call was answered.
    std::function<void()> on_superseded;
    // The edges that the run waited for are there; called in the same way.
    std::function<void()> on_edges_arrived = nullptr;
  };

  // All must outlive this object.
  LockServiceImpl(Options options, RunCoordinator* run, RunLoop* loop, const Clock& clock);

#define WEFT_LOCK_CALL(Name)                                                                     \
  grpc::ServerUnaryReactor* Name(grpc::CallbackServerContext* context,                           \
                                 const v1::Name##Request* request, v1::Name##Response* response) \
      override

  WEFT_LOCK_CALL(Register);
  WEFT_LOCK_CALL(Heartbeat);
  WEFT_LOCK_CALL(AcquireBucket);
  WEFT_LOCK_CALL(ReleaseBucket);
  WEFT_LOCK_CALL(AbandonBucket);
  WEFT_LOCK_CALL(Leave);
  WEFT_LOCK_CALL(ReportUnreadable);
  WEFT_LOCK_CALL(ReportFailure);
  WEFT_LOCK_CALL(StoreSync);
  WEFT_LOCK_CALL(BeginImport);
  WEFT_LOCK_CALL(AddEdges);
  WEFT_LOCK_CALL(CompleteImport);
  WEFT_LOCK_CALL(BeginPush);
  WEFT_LOCK_CALL(AddPushed);
  WEFT_LOCK_CALL(CommitPush);
  WEFT_LOCK_CALL(GetRunState);
  WEFT_LOCK_CALL(GetCheckpoint);
  WEFT_LOCK_CALL(PinCheckpoint);
  WEFT_LOCK_CALL(UnpinCheckpoint);
  WEFT_LOCK_CALL(PreserveCheckpoint);
  WEFT_LOCK_CALL(Rollback);
  WEFT_LOCK_CALL(PauseRun);
  WEFT_LOCK_CALL(ForgetStore);
  WEFT_LOCK_CALL(ReportEvaluation);

#undef WEFT_LOCK_CALL

 private:
  // Makes a call that does not wait.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const Request* request,
                                 Response* response, std::function<absl::Status()> call);
  // Makes a call that may: `call` gives nothing as long as there is nothing to say.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* CallAndWait(grpc::CallbackServerContext* context,
                                        const Request* request, Response* response, int64_t wait_ms,
                                        std::function<std::optional<absl::Status>(bool last)> call);

  const Options options_;
  RunCoordinator* const run_;
  RunLoop* const loop_;
  const Clock& clock_;
  const v1::RunInfo run_info_;
};

}  // namespace weft
