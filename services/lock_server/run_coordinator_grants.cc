// Grants: who trains what, and what becomes of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_coordinator.h"

namespace weft {
namespace {

constexpr size_t kMaxGrants = 2;

std::string Name(Bucket b) { return absl::StrCat("(", b.lhs, ", ", b.rhs, ")"); }

std::string Name(PartitionKey key) {
  return absl::StrCat("partition ", key.partition, " of entity type ", key.entity_type);
}

absl::Status RunHasFailed(const TrainingFailure& failure) {
  return absl::FailedPreconditionError(
      absl::StrCat("the run has failed in bucket ", Name(failure.bucket), ": ", failure.reason));
}

absl::Status GrantHasEnded(Token token) {
  return absl::AbortedError(absl::StrCat("grant ", token, " has ended"));
}

bool Contains(const std::vector<PartitionKey>& keys, PartitionKey key) {
  return std::ranges::find(keys, key) != keys.end();
}

const GrantRecord::Base* Find(const GrantRecord& grant, PartitionKey key) {
  for (const GrantRecord::Base& base : grant.bases) {
    if (base.key == key) return &base;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<AcquireResult> RunCoordinator::Acquire(SessionId id, const AcquireRequest& request) {
  MutexLock lock(&mu_);
  const auto found = state_.sessions.find(id);
  if (found == state_.sessions.end()) {
    return Refuse(CallRefusal::kSessionEnded, absl::AbortedError("the session has ended"));
  }
  const SessionRecord& session = found->second;
  leases_.Heard(id, clock_.SteadyNow());
  if (state_.failure.has_value()) {
    return Refuse(CallRefusal::kRunFailed, RunHasFailed(*state_.failure));
  }

  AcquireResult result;
  // Until what it ends with is durable, a rewind may need its trainers again.
  result.run_done = Done() && !ManifestPending();
  if (session.granted != kInitialToken && request.number <= session.number) {
    if (request.number < session.number) {
      return Refuse(CallRefusal::kMalformed, absl::InvalidArgumentError(absl::StrCat(
                                                 "acquire number ", request.number, " after ",
                                                 session.number, ": numbers only grow")));
    }
    const auto grant = state_.grants.find(session.granted);
    if (grant == state_.grants.end()) {
      return Refuse(CallRefusal::kGrantEnded, GrantHasEnded(session.granted));
    }
    ++counters_.repeated_acquires;
    result.grant = Describe(session.granted, grant->second);
  } else if (Phase() == RunPhase::kRunning && accounting_.has_value() &&
             session.grants.size() < kMaxGrants && !NothingIsFreeFor(id, session)) {
    WEFT_ASSIGN_OR_RETURN(result.grant, MakeGrant(id, request));
  }
  if (accounting_.has_value()) result.remaining = scheduler_.num_buckets() - scheduler_.num_done();
  return result;
}

bool RunCoordinator::NothingIsFreeFor(SessionId id, const SessionRecord& session) {
  if (!session.grants.empty() || nothing_free_at_ != grant_revision_) return false;
  return !tree_hinders_ || !HasWaitedForTree(id);
}

double RunCoordinator::EdgesPerSecond() const {
  if (plan_.edges_per_second.has_value()) return *plan_.edges_per_second;
  return trained_edges_ == 0 ? 0 : static_cast<double>(trained_edges_) / trained_seconds_;
}

Token RunCoordinator::Base(const SessionRecord& session, PartitionKey key) const {
  for (auto token = session.grants.rbegin(); token != session.grants.rend(); ++token) {
    if (Find(state_.grants.at(*token), key) != nullptr) return *token;
  }
  return state_.versions.current(key);
}

absl::StatusOr<std::optional<Grant>> RunCoordinator::MakeGrant(SessionId id,
                                                               const AcquireRequest& request) {
  if (plan_.cluster.has_value() && StoresByRoom(0).empty()) return std::optional<Grant>();
  const SessionRecord& session = state_.sessions.at(id);
  // Of what the session names, only what is still up to date counts.
  std::vector<PartitionKey> resident;
  for (const PartitionVersion& copy : request.resident) {
    const bool current = state_.versions.Has(copy.key) && Base(session, copy.key) == copy.token;
    if (current && !Contains(resident, copy.key)) resident.push_back(copy.key);
  }
  std::vector<PartitionKey> unusable;
  for (const Token token : session.grants) {
    for (const GrantRecord::Base& base : state_.grants.at(token).bases) {
      if (!Contains(resident, base.key)) unusable.push_back(base.key);
    }
  }

  const Token token = last_token_ + 1;
  const PassAccounting& accounting = *accounting_;
  const double edges_to_commit = plan_.commit_seconds * EdgesPerSecond();
  const std::optional<BucketScheduler::Trained> trained = InitTree(resident);
  BucketScheduler::Request wanted = {id, resident, unusable,
                                     trained.has_value() ? &*trained : nullptr};
  const auto add = [&](const std::vector<Bucket>& granted, Bucket further) {
    if (trained.has_value()) return false;  // others wait for what this trains
    int64_t edges = accounting.Expected(further);
    for (const Bucket& b : granted) edges += accounting.Expected(b);
    return static_cast<double>(edges) <= edges_to_commit;
  };
  std::vector<Bucket> buckets = scheduler_.Grant(wanted, token, add);
  const bool tree_hinders = buckets.empty() && trained.has_value() && !HasWaitedForTree(id);
  if (buckets.empty() && trained.has_value() && !tree_hinders) {
    wanted.trained = nullptr;
    buckets = scheduler_.Grant(wanted, token, add);
  }
  if (buckets.empty()) {
    if (session.grants.empty()) {
      nothing_free_at_ = grant_revision_;
      tree_hinders_ = tree_hinders;
    }
    return std::optional<Grant>();
  }
  tree_waits_.erase(id);
  last_token_ = token;

  const int limit = plan_.cluster.has_value() ? plan_.cluster->max_bucket_attempts : 0;
  for (const Bucket& bucket : buckets) {
    const auto attempts = state_.attempts.find(bucket);
    if (limit == 0 || attempts == state_.attempts.end() || attempts->second < limit) continue;
    scheduler_.Return(token);
    WEFT_RETURN_IF_ERROR(
        Fail({bucket, absl::StrCat("granted ", limit, " times and never handed in")}));
    return Refuse(CallRefusal::kRunFailed, RunHasFailed(*state_.failure));
  }

  GrantRecord record = {id, buckets, {}};
  const std::vector<PartitionKey> keys = scheduler_.PartitionsOf(buckets.front());
  for (const PartitionKey& key : keys) {
    using Source = GrantedPartition::Source;
    const Token base = Base(session, key);
    record.bases.push_back({key, base,
                            Contains(resident, key) ? Source::kKeep
                            : base == kInitialToken ? Source::kInitialise
                                                    : Source::kRead});
  }
  Grant grant = Describe(token, record);
  WEFT_RETURN_IF_ERROR(WriteLive(GrantMade{token, request.number, std::move(record)}));
  leases_.Granted(id, token, clock_.SteadyNow());
  counters_.GrantMade(token, clock_.SteadyNow());

  std::vector<std::pair<uint64_t, PartitionKey>> unused;
  for (const PartitionVersion& copy : request.resident) {
    if (Contains(keys, copy.key)) continue;
    const bool useful = Contains(resident, copy.key);
    unused.emplace_back(useful ? scheduler_.NextUse(copy.key) : UINT64_MAX, copy.key);
  }
  std::ranges::sort(unused, std::greater<>());
  for (const auto& [next_use, key] : unused) grant.let_go.push_back(key);

  for (const PartitionKey& key : keys) {
    if (!Contains(resident, key)) resident.push_back(key);
  }
  AddHint(id, state_.sessions.at(id), resident, &grant);
  return std::optional<Grant>(std::move(grant));
}

Grant RunCoordinator::Describe(Token token, const GrantRecord& record) const {
  Grant grant;
  grant.token = token;
  grant.position = state_.position;
  for (const Bucket& b : record.buckets) grant.buckets.push_back({b, accounting_->Expected(b)});
  for (const GrantRecord::Base& base : record.bases) {
    grant.partitions.push_back(
        {base.key, base.token, base.source, base.token != state_.versions.committed(base.key)});
    if (base.source == GrantedPartition::Source::kRead) {
      AddPlaces({base.key, base.token}, &grant.places);
    }
  }
  if (plan_.cluster.has_value()) {
    grant.store_at = StoresByRoom(token);
    grant.replicas = plan_.cluster->partition_replicas;
    for (const Bucket& b : record.buckets) AddEdgesOf(b, &grant);
  }
  return grant;
}

void RunCoordinator::AddPlaces(const PartitionVersion& version,
                               std::vector<VersionInfo>* places) const {
  const PlaceTable::Shards* shards = state_.places.Find(version);
  if (shards == nullptr) return;
  VersionInfo info = {version, *shards};
  for (ShardInfo& shard : info.shards) {
    // Suspects last.
    const auto suspects = suspects_.find({version, shard.shard});
    if (suspects == suspects_.end()) continue;
    std::stable_partition(shard.places.begin(), shard.places.end(),
                          [&](const Place& p) { return !suspects->second.contains(p.store_id); });
  }
  places->push_back(std::move(info));
}

void RunCoordinator::AddHint(SessionId id, const SessionRecord& session,
                             const std::vector<PartitionKey>& in_memory, Grant* grant) {
  const std::optional<BucketScheduler::Trained> trained = InitTree(in_memory);
  grant->hinted_bucket =
      scheduler_.Hint({id, in_memory, {}, trained.has_value() ? &*trained : nullptr});
  if (!grant->hinted_bucket.has_value()) return;
  for (const PartitionKey& key : scheduler_.PartitionsOf(*grant->hinted_bucket)) {
    if (Contains(in_memory, key)) continue;
    // As the next grant will find it: what its session is still storing counts.
    grant->hint.push_back({key, Base(session, key)});
    AddPlaces(grant->hint.back(), &grant->places);
  }
  AddEdgesOf(*grant->hinted_bucket, grant);
}

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
    return Refuse(CallRefusal::kGrantEnded, GrantHasEnded(request.token));
  }
  for (const GrantRecord::Base& base : live->second.bases) {
    const Token current = state_.versions.current(base.key);
    if (current == base.token) continue;
    const absl::Status refused = absl::AbortedError(
        absl::StrCat("grant ", request.token, " started from version ", base.token, " of ",
                     Name(base.key), ", but ", current, " is current"));
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
    if (Find(grant, key) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, Name(key), " does not belong to it"));
  }
  for (const GrantRecord::Base& base : grant.bases) {
    if (Contains(request.stored, base.key)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(what, Name(base.key), " has not been stored"));
  }
  if (!plan_.cluster.has_value()) return absl::OkStatus();
  for (const PartitionKey& key : request.stored) {
    const auto info = std::ranges::find_if(request.places, [&](const VersionInfo& v) {
      return v.version == PartitionVersion{key, request.token};
    });
    if (info == request.places.end()) {
      return absl::InvalidArgumentError(absl::StrCat(what, Name(key), " lies nowhere"));
    }
    WEFT_RETURN_IF_ERROR(Annotate(CheckShards(*info), what + Name(key)));
    WEFT_RETURN_IF_ERROR(Annotate(CheckPlaces(*info), what + Name(key)));
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
    return info.version.token != request.token || !Contains(request.stored, info.version.key);
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
  Event(absl::StrCat("the run has failed: bucket=", Name(failure.bucket),
                     " reason=", failure.reason));
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
    return Refuse(CallRefusal::kGrantEnded, GrantHasEnded(token));
  }
  return Fail(failure);
}

absl::StatusOr<std::vector<Place>> RunCoordinator::ReportUnreadable(SessionId id, Token token,
                                                                    const ShardName& name,
                                                                    const Place& place) {
  MutexLock lock(&mu_);
  const auto live = state_.grants.find(token);
  if (live == state_.grants.end() || live->second.session != id) {
    return Refuse(CallRefusal::kGrantEnded, GrantHasEnded(token));
  }
  const GrantRecord::Base* base = Find(live->second, name.version.key);
  const PlaceTable::Shards* shards = state_.places.Find(name.version);
  // Edges are the same for all.
  const bool edges = name.version.key.entity_type == kEdgesType;
  if ((!edges && (base == nullptr || base->token != name.version.token)) || shards == nullptr ||
      name.shard >= shards->size()) {
    return Refuse(CallRefusal::kMalformed,
                  absl::AbortedError(absl::StrCat("version ", name.version.token, " of ",
                                                  Name(name.version.key), " is not what grant ",
                                                  token, " starts from")));
  }
  std::vector<Place> left;
  absl::flat_hash_set<StoreId>& suspects = suspects_[name];
  for (const Place& p : (*shards)[name.shard].places) {
    if (p == place && suspects.insert(p.store_id).second) {
      ++sync_revision_;
      Event(absl::StrCat("cannot be read, to be checked: version=", name.version.token,
                         " type=", name.version.key.entity_type,
                         " partition=", name.version.key.partition, " shard=", name.shard));
    }
    if (!suspects.contains(p.store_id)) left.push_back(p);
  }
  return left;
}

absl::Status RunCoordinator::Leave(SessionId id) {
  MutexLock lock(&mu_);
  const auto found = state_.sessions.find(id);
  if (found == state_.sessions.end()) return absl::OkStatus();
  Event(absl::StrCat("session ends, left: trainer=", found->second.name));
  WEFT_RETURN_IF_ERROR(Void(std::vector<Token>(found->second.grants), GrantEnd::kGivenBack));
  return EndSession(id, SessionEnd::kLeft);
}

}  // namespace weft
