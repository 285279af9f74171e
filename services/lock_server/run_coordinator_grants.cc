// Grants: who trains what, from which versions.
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_coordinator.h"
#include "services/lock_server/run_names.h"

namespace weft {
namespace {

constexpr size_t kMaxGrants = 2;

absl::Status RunHasFailed(const TrainingFailure& failure) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the run has failed in bucket ", ToString(failure.bucket), ": ", failure.reason));
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
      return RefuseEndedGrant(session.granted);
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
    if (state_.grants.at(*token).Find(key) != nullptr) return *token;
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
    if (current && !absl::c_linear_search(resident, copy.key)) resident.push_back(copy.key);
  }
  std::vector<PartitionKey> unusable;
  for (const Token token : session.grants) {
    for (const GrantRecord::Base& base : state_.grants.at(token).bases) {
      if (!absl::c_linear_search(resident, base.key)) unusable.push_back(base.key);
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
                            absl::c_linear_search(resident, key) ? Source::kKeep
                            : base == kInitialToken              ? Source::kInitialise
                                                                 : Source::kRead});
  }
  Grant grant = Describe(token, record);
  WEFT_RETURN_IF_ERROR(WriteLive(GrantMade{token, request.number, std::move(record)}));
  leases_.Granted(id, token, clock_.SteadyNow());
  counters_.GrantMade(token, clock_.SteadyNow());
  if (Tells(LogEvent::Level::kDebug)) {
    Event(LogEvent("grant begins", DescribeGrant(token), LogEvent::Level::kDebug));
  }

  std::vector<std::pair<uint64_t, PartitionKey>> unused;
  for (const PartitionVersion& copy : request.resident) {
    if (absl::c_linear_search(keys, copy.key)) continue;
    const bool useful = absl::c_linear_search(resident, copy.key);
    unused.emplace_back(useful ? scheduler_.NextUse(copy.key) : UINT64_MAX, copy.key);
  }
  std::ranges::sort(unused, std::greater<>());
  for (const auto& [next_use, key] : unused) grant.let_go.push_back(key);

  for (const PartitionKey& key : keys) {
    if (!absl::c_linear_search(resident, key)) resident.push_back(key);
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
    if (absl::c_linear_search(in_memory, key)) continue;
    // As the next grant will find it: what its session is still storing counts.
    grant->hint.push_back({key, Base(session, key)});
    AddPlaces(grant->hint.back(), &grant->places);
  }
  AddEdgesOf(*grant->hinted_bucket, grant);
}

absl::StatusOr<std::vector<Place>> RunCoordinator::ReportUnreadable(SessionId id, Token token,
                                                                    const ShardName& name,
                                                                    const Place& place) {
  MutexLock lock(&mu_);
  const auto live = state_.grants.find(token);
  if (live == state_.grants.end() || live->second.session != id) {
    return RefuseEndedGrant(token);
  }
  const GrantRecord::Base* base = live->second.Find(name.version.key);
  const PlaceTable::Shards* shards = state_.places.Find(name.version);
  // Edges are the same for all.
  const bool edges = name.version.key.entity_type == kEdgesType;
  if ((!edges && (base == nullptr || base->token != name.version.token)) || shards == nullptr ||
      name.shard >= shards->size()) {
    return Refuse(CallRefusal::kMalformed,
                  absl::AbortedError(absl::StrCat("version ", name.version.token, " of ",
                                                  ToString(name.version.key), " is not what grant ",
                                                  token, " starts from")));
  }
  std::vector<Place> left;
  absl::flat_hash_set<StoreId>& suspects = suspects_[name];
  for (const Place& p : (*shards)[name.shard].places) {
    if (p == place && suspects.insert(p.store_id).second) {
      ++sync_revision_;
      Event(LogEvent("cannot be read, to be checked",
                     {{"version", name.version.token},
                      {"type", name.version.key.entity_type},
                      {"partition", name.version.key.partition},
                      {"shard", name.shard}},
                     LogEvent::Level::kWarning));
    }
    if (!suspects.contains(p.store_id)) left.push_back(p);
  }
  return left;
}

}  // namespace weft
