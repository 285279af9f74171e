#include "services/lock_server/local_lock_client.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "services/common/status_macros.h"

namespace weft {
namespace {

using std::chrono::steady_clock;

steady_clock::time_point DeadlineAfter(absl::Duration wait) {
  // Far enough, and no overflow.
  const absl::Duration bounded = std::clamp(wait, absl::ZeroDuration(), absl::Hours(24));
  return steady_clock::now() + absl::ToChronoNanoseconds(bounded);
}

}  // namespace

LocalLockClient::LocalLockClient(RunCoordinator* coordinator, CheckpointWriter* writer,
                                 CommitObserver on_commit)
    : coordinator_(coordinator), writer_(writer), on_commit_(std::move(on_commit)) {}

RunCoordinator::SessionId LocalLockClient::Session() {
  MutexLock lock(&mu_);
  if (!session_.has_value()) session_ = coordinator_->Register();
  return *session_;
}

void LocalLockClient::Changed() {
  MutexLock lock(&mu_);
  ++changes_;
  changed_.SignalAll();
}

absl::StatusOr<AcquireResult> LocalLockClient::AcquireBucket(const AcquireRequest& request) {
  const steady_clock::time_point deadline = DeadlineAfter(request.wait);
  while (true) {
    uint64_t seen;
    {
      MutexLock lock(&mu_);
      seen = changes_;
    }
    WEFT_RETURN_IF_ERROR(CommitCompletePasses(deadline));
    absl::StatusOr<AcquireResult> result = coordinator_->Acquire(Session(), request);
    if (!result.ok()) return result.status();
    if (result->grant.has_value() || result->run_done) return result;
    MutexLock lock(&mu_);
    while (changes_ == seen) {
      if (!changed_.WaitUntil(&mu_, deadline)) return result;
    }
  }
}

absl::StatusOr<ReleaseResult> LocalLockClient::ReleaseBucket(const ReleaseRequest& request) {
  std::vector<PartitionVersion> stored;
  for (const PartitionKey& key : request.stored) stored.push_back({key, request.token});
  absl::StatusOr<ReleaseResult> result = absl::UnknownError("");
  {
    MutexLock lock(&writing_mu_);
    WEFT_RETURN_IF_ERROR(writer_->CheckStored(stored));
    result = coordinator_->Release(Session(), request);
    if (result.ok()) writer_->Sweep(coordinator_->keep_list());
  }
  Changed();
  if (!result.ok()) return result.status();
  WEFT_RETURN_IF_ERROR(CommitCompletePasses(DeadlineAfter(absl::InfiniteDuration())));
  return result;
}

absl::Status LocalLockClient::AbandonBucket(Token token) {
  const absl::Status status = coordinator_->Abandon(Session(), token);
  Changed();
  return status;
}

absl::Status LocalLockClient::ReportFailure(Token token, const TrainingFailure& failure) {
  const absl::Status status = coordinator_->ReportFailure(Session(), token, failure);
  Changed();
  return status;
}

absl::Status LocalLockClient::Leave() {
  std::optional<RunCoordinator::SessionId> session;
  {
    MutexLock lock(&mu_);
    session.swap(session_);
  }
  if (session.has_value()) WEFT_RETURN_IF_ERROR(coordinator_->Leave(*session));
  Changed();
  return absl::OkStatus();
}

absl::Status LocalLockClient::CommitCompletePasses(steady_clock::time_point deadline) {
  {
    MutexLock lock(&mu_);
    while (committing_) {
      if (!changed_.WaitUntil(&mu_, deadline)) return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(commit_error_);
    committing_ = true;
  }
  absl::Status status;
  // A pass without any edge is complete as soon as it begins.
  for (auto pass = coordinator_->complete_pass(); status.ok() && pass.has_value();
       pass = coordinator_->complete_pass()) {
    status = Commit(*pass);
  }
  {
    MutexLock lock(&mu_);
    committing_ = false;
    commit_error_ = status;
    changed_.SignalAll();  // others may be waiting for their turn
  }
  return status;
}

absl::Status LocalLockClient::Commit(const CompletePass& pass) {
  {
    MutexLock lock(&writing_mu_);
    WEFT_RETURN_IF_ERROR(writer_->WriteVersion(pass));
    WEFT_RETURN_IF_ERROR(coordinator_->PassCommitted(pass.version));
    writer_->BeginPass(coordinator_->progress().position);
    coordinator_->FilesRemoved(writer_->RemoveVersions(coordinator_->obsolete_versions()));
    writer_->Sweep(coordinator_->keep_list());
  }
  if (on_commit_ != nullptr) on_commit_(pass);
  Changed();
  return absl::OkStatus();
}

}  // namespace weft
