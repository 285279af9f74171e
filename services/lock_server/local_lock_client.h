// LocalLockClient is the run's coordinator in this process, as a trainer sees it: it waits where
// the coordinator does not, and has the checkpoint written when a pass is complete.
//
// A checkpoint is written by the call that finds the pass complete: the release that ended it, or,
// after a restart, the first acquire. Other acquires wait meanwhile: nobody trains while what all
// trainers share is written.
// After Aborted the next acquire begins a new session.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "services/common/mutex.h"
#include "services/lock_server/checkpoint_writer.h"
#include "services/lock_server/lock_client.h"
#include "services/lock_server/run_coordinator.h"

namespace weft {

class LocalLockClient : public LockClient {
 public:
  // Called after a version was committed, without any lock.
  using CommitObserver = std::function<void(const CompletePass&)>;

  // `coordinator` and `writer` must outlive this object.
  LocalLockClient(RunCoordinator* coordinator, CheckpointWriter* writer,
                  CommitObserver on_commit = nullptr);

  absl::StatusOr<AcquireResult> AcquireBucket(const AcquireRequest& request) override;
  // Errors: also those of writing the checkpoint, when this release completed a pass. The release
  // itself is kept then; the run goes no further until it is opened again.
  absl::StatusOr<ReleaseResult> ReleaseBucket(const ReleaseRequest& request) override;
  absl::Status AbandonBucket(Token token) override;
  absl::Status ReportFailure(Token token, const TrainingFailure& failure) override;
  absl::Status Leave() override;

 private:
  RunCoordinator::SessionId Session() ABSL_LOCKS_EXCLUDED(mu_);
  void Changed() ABSL_LOCKS_EXCLUDED(mu_);
  // Writes and commits complete passes until one is not complete. Waits for another call that
  // does so, until `deadline`.
  absl::Status CommitCompletePasses(std::chrono::steady_clock::time_point deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Commit(const CompletePass& pass) ABSL_LOCKS_EXCLUDED(mu_);

  RunCoordinator* const coordinator_;
  CheckpointWriter* const writer_;
  const CommitObserver on_commit_;

  Mutex writing_mu_;  // held while the writer is called; taken before mu_
  Mutex mu_;
  CondVar changed_;  // something may have become grantable
  std::optional<RunCoordinator::SessionId> session_ ABSL_GUARDED_BY(mu_);
  uint64_t changes_ ABSL_GUARDED_BY(mu_) = 0;
  bool committing_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status commit_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
