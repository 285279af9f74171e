// How grants and sessions end: handed in, given back, voided.
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_coordinator.h"
#include "services/lock_server/run_names.h"

namespace weft {

absl::StatusOr<ReleaseResult> RunCoordinator::Release(SessionId id, const ReleaseRequest& request) {
  MutexLock lock(&mu_);
  const auto found = state_.sessions.find(id);
  if (found == state_.sessions.end()) {
    return Refuse(CallRefusal::kSessionEnded, absl::AbortedError("the session has ended"));
  }
  leases_.Heard(id, clock_.SteadyNow());
  for (const ReleaseOutcome& outcome : found->second.outcomes) {
    if (outcome.token != request.token) continue;
    ++counters_.repeated_releases;
    return ReleaseResult{.pass_done = outcome.pass_done};
  }
  const auto live = state_.grants.find(request.token);
  if (live == state_.grants.end() || live->second.session != id) {
    return RefuseEndedGrant(request.token);
  }
  for (const GrantRecord::Base& base : live->second.bases) {
    const Token current = state_.versions.current(base.key);
    if (current == base.token) continue;
    const absl::Status refused = absl::AbortedError(
        absl::StrCat("grant ", request.token, " started from version ", base.token, " of ",
                     ToString(base.key), ", but ", current, " is current"));
    // Its trainer will register anew; on one machine it is the same session that goes on.
    WEFT_RETURN_IF_ERROR(plan_.cluster.has_value()
                             ? EndSession(id, SessionEnd::kRefused)
                             : Void(WithSuccessors(request.token), GrantEnd::kRefused));
    return Refuse(CallRefusal::kStaleBase, refused);
  }
  if (absl::Status fits = CheckRelease(request, live->second); !fits.ok()) {
    if (absl::IsInvalidArgument(fits)) return Refuse(CallRefusal::kMalformed, fits);
    if (absl::IsFailedPrecondition(fits)) return Refuse(CallRefusal::kNotStored, fits);
    return fits;
  }

  WEFT_ASSIGN_OR_RETURN(const ReleaseResult result, ReleaseLive(id, request));
  WEFT_RETURN_IF_ERROR(Advance());
  return result;
}

absl::Status RunCoordinator::CheckRelease(const ReleaseRequest& request, const GrantRecord& grant) {
  const std::string what = absl::StrCat("release of grant ", request.token, ": ");
  std::vector<Bucket> reported;
  for (const BucketStats& stats : request.buckets) reported.push_back(stats.bucket);
  if (!std::ranges::is_permutation(reported, grant.buckets)) {
    return absl::InvalidArgumentError(absl::StrCat(what, "it has ", grant.buckets.size(),
                                                   " buckets, not the ", reported.size(),
                                                   " of the report"));
  }
  for (size_t i = 0; i < request.stored.size(); ++i) {
    const PartitionKey& key = request.stored[i];
    if (grant.Find(key) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, ToString(key), " does not belong to it"));
  }
  for (const GrantRecord::Base& base : grant.bases) {
    if (absl::c_linear_search(request.stored, base.key)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(what, ToString(base.key), " has not been stored"));
  }
  if (!plan_.cluster.has_value()) return absl::OkStatus();
  for (const PartitionKey& key : request.stored) {
    const auto info = std::ranges::find_if(request.places, [&](const VersionInfo& v) {
      return v.version == PartitionVersion{key, request.token};
    });
    if (info == request.places.end()) {
      return absl::InvalidArgumentError(absl::StrCat(what, ToString(key), " lies nowhere"));
    }
    WEFT_RETURN_IF_ERROR(Annotate(CheckShards(*info), what + ToString(key)));
    WEFT_RETURN_IF_ERROR(Annotate(CheckPlaces(*info), what + ToString(key)));
  }
  return absl::OkStatus();
}

absl::Status RunCoordinator::CheckShards(const VersionInfo& info) const {
  const PartitionKey key = info.version.key;
  int64_t rows = 0;
  for (size_t i = 0; i < info.shards.size(); ++i) {
    const ShardInfo& shard = info.shards[i];
    if (shard.shard != i || shard.first_row != rows || shard.num_rows < 0 || shard.size_bytes < 0) {
      return absl::InvalidArgumentError(absl::StrCat("its shard ", i, " is out of order"));
    }
    rows += shard.num_rows;
  }
  if (info.shards.empty()) return absl::InvalidArgumentError("it has no shards");
  if (key.entity_type < 0) return absl::OkStatus();
  const auto& types = state_.shape.entity_types;
  const std::vector<int64_t>& counts = types[static_cast<size_t>(key.entity_type)].counts;
  if (counts.empty() || counts[static_cast<size_t>(key.partition)] == rows) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("it has ", rows, " rows, not ", counts[static_cast<size_t>(key.partition)]));
}

absl::StatusOr<ReleaseResult> RunCoordinator::ReleaseLive(SessionId id,
                                                          const ReleaseRequest& request) {
  for (const BucketStats& bucket : request.buckets) {
    const absl::Status exact = accounting_->Check(bucket);
    if (exact.ok()) continue;
    WEFT_RETURN_IF_ERROR(Fail({bucket.bucket, std::string(exact.message())}));
    return Refuse(CallRefusal::kWrongEdges, exact);
  }
  GrantReleased released = {request.token,
                            request.stored,
                            request.buckets,
                            request.places,
                            id,
                            scheduler_.num_done() + static_cast<int64_t>(request.buckets.size()) ==
                                scheduler_.num_buckets()};
  std::erase_if(released.places, [&](const VersionInfo& info) {
    return info.version.token != request.token ||
           !absl::c_linear_search(request.stored, info.version.key);
  });
  const bool pass_done = released.pass_done;
  CountGrantEnds({request.token}, GrantEnd::kReleased);
  WEFT_RETURN_IF_ERROR(Write(released));
  scheduler_.Finish(request.token);
  leases_.GrantEnded(id, request.token);
  ++grant_revision_;
  ++garbage_;
  for (const BucketStats& bucket : request.buckets) {
    trained_edges_ += bucket.trained_edges;
    trained_seconds_ += bucket.train_seconds;
    totals_.Add(bucket);
    counters_.Committed(bucket, clock_.SteadyNow());
  }
  return ReleaseResult{.pass_done = pass_done};
}

std::vector<Token> RunCoordinator::WithSuccessors(Token token) const {
  std::vector<Token> tokens = {token};
  // Grants of a session are in the order in which they were made, so one look is enough.
  for (const Token later : state_.sessions.at(state_.grants.at(token).session).grants) {
    if (later <= token) continue;
    const bool depends =
        std::ranges::any_of(state_.grants.at(later).bases, [&](const GrantRecord::Base& base) {
          return std::ranges::find(tokens, base.token) != tokens.end();
        });
    if (depends) tokens.push_back(later);
  }
  return tokens;
}

absl::Status RunCoordinator::Void(const std::vector<Token>& tokens, GrantEnd why) {
  if (tokens.empty()) return absl::OkStatus();
  const bool given_back = why == GrantEnd::kGivenBack || why == GrantEnd::kUnknown;
  CountGrantEnds(tokens, why);
  for (const Token token : tokens) leases_.GrantEnded(state_.grants.at(token).session, token);
  WEFT_RETURN_IF_ERROR(WriteLive(GrantsVoided{tokens, given_back}));
  for (const Token token : tokens) scheduler_.Return(token);
  ++grant_revision_;
  ++garbage_;
  return absl::OkStatus();
}

absl::Status RunCoordinator::EndSession(SessionId id, SessionEnd why) {
  const std::vector<Token> grants = state_.sessions.at(id).grants;
  CountGrantEnds(grants, why == SessionEnd::kRefused ? GrantEnd::kRefused : GrantEnd::kExpired);
  ++counters_.sessions_ended[static_cast<size_t>(why)];
  Event(LogEvent("session ends", {{"trainer", state_.sessions.at(id).name},
                                  {"session", id},
                                  {"reason", kSessionEnds[static_cast<size_t>(why)]}}));
  WEFT_RETURN_IF_ERROR(WriteLive(SessionEnded{id}));
  for (const Token token : grants) scheduler_.Return(token);
  scheduler_.ForgetHint(id);
  tree_waits_.erase(id);
  leases_.End(id);
  ++grant_revision_;
  ++sync_revision_;  // parameter servers forget it
  ++garbage_;
  return absl::OkStatus();
}

absl::Status RunCoordinator::Fail(TrainingFailure failure) {
  std::vector<std::pair<SessionId, Token>> grants;
  for (const auto& [token, grant] : state_.grants) {
    grants.emplace_back(grant.session, token);
    CountGrantEnds({token}, GrantEnd::kFailed);
  }
  Event(LogEvent("the run has failed",
                 {{"pass", state_.position.pass},
                  {"bucket", LogName(failure.bucket)},
                  {"reason", failure.reason}},
                 LogEvent::Level::kError));
  WEFT_RETURN_IF_ERROR(Write(RunFailed{std::move(failure)}));
  for (const auto& [session, token] : grants) {
    scheduler_.Return(token);
    leases_.GrantEnded(session, token);
  }
  ++grant_revision_;
  ++sync_revision_;
  ++garbage_;
  return absl::OkStatus();
}

absl::Status RunCoordinator::Abandon(SessionId id, Token token) {
  MutexLock lock(&mu_);
  const auto live = state_.grants.find(token);
  if (live == state_.grants.end() || live->second.session != id) return absl::OkStatus();
  leases_.Heard(id, clock_.SteadyNow());
  return Void(WithSuccessors(token), GrantEnd::kGivenBack);
}

absl::Status RunCoordinator::ReportFailure(SessionId id, Token token,
                                           const TrainingFailure& failure) {
  MutexLock lock(&mu_);
  const auto live = state_.grants.find(token);
  if (live == state_.grants.end() || live->second.session != id) {
    return RefuseEndedGrant(token);
  }
  return Fail(failure);
}

absl::Status RunCoordinator::Leave(SessionId id) {
  MutexLock lock(&mu_);
  const auto found = state_.sessions.find(id);
  if (found == state_.sessions.end()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(Void(std::vector<Token>(found->second.grants), GrantEnd::kGivenBack));
  return EndSession(id, SessionEnd::kLeft);
}

absl::Status RunCoordinator::RefuseEndedGrant(Token token) {
  return Refuse(CallRefusal::kGrantEnded,
                absl::AbortedError(absl::StrCat("grant ", token, " has ended")));
}

}  // namespace weft
