#include "services/lock_server/run_coordinator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"
#include "services/lock_server/bucket_order.h"
#include "services/lock_server/pass_sequence.h"

namespace weft {
namespace {

constexpr int kTokenBits = 40;  // of the part that counts within a term
constexpr size_t kRememberedOutcomes = 8;
constexpr size_t kMaxGrants = 2;

std::string Name(Bucket b) { return absl::StrCat("(", b.lhs, ", ", b.rhs, ")"); }

absl::Status RunHasFailed(const TrainingFailure& failure) {
  return absl::FailedPreconditionError(
      absl::StrCat("the run has failed in bucket ", Name(failure.bucket), ": ", failure.reason));
}

bool Contains(const std::vector<PartitionKey>& keys, PartitionKey key) {
  return std::ranges::find(keys, key) != keys.end();
}

const PartitionVersion* Find(absl::Span<const PartitionVersion> versions, PartitionKey key) {
  for (const PartitionVersion& version : versions) {
    if (version.key == key) return &version;
  }
  return nullptr;
}

}  // namespace

bool RunCoordinator::PassIsComplete(const RunPlan& plan, const RunState& state) {
  const auto& edges = plan.bucket_edges[static_cast<size_t>(state.position.edge_path)];
  const size_t empty = PassAccounting(edges, plan.num_rhs, state.position).EmptyBuckets().size();
  return state.done.size() + empty == edges.size();
}

absl::StatusOr<std::unique_ptr<RunCoordinator>> RunCoordinator::Start(RunPlan plan, RunState state,
                                                                      RunStore* store) {
  ++state.term;
  state.failure.reset();
  WEFT_RETURN_IF_ERROR(store->Replace(state));
  return std::unique_ptr<RunCoordinator>(
      new RunCoordinator(std::move(plan), std::move(state), store));
}

RunCoordinator::RunCoordinator(RunPlan plan, RunState state, RunStore* store)
    : plan_(std::move(plan)),
      store_(store),
      state_(std::move(state)),
      scheduler_({.num_lhs = plan_.num_lhs,
                  .num_rhs = plan_.num_rhs,
                  .types = plan_.partitioned_types,
                  .order_first = plan_.bucket_order == BucketOrder::kRandom}),
      last_token_(state_.term << kTokenBits) {
  MutexLock lock(&mu_);
  BeginPass();
}

void RunCoordinator::BeginPass() {
  accounting_.reset();
  if (Done()) return;
  const PassPosition& position = state_.position;
  accounting_.emplace(plan_.bucket_edges[static_cast<size_t>(position.edge_path)], plan_.num_rhs,
                      position);
  std::vector<Bucket> done = accounting_->EmptyBuckets();
  for (const DoneBucket& bucket : state_.done) done.push_back(bucket.stats.bucket);
  const bool square = std::ranges::any_of(
      plan_.partitioned_types,
      [](const BucketScheduler::PartitionedType& type) { return type.lhs && type.rhs; });
  const bool beta =
      plan_.resident_partitions > 2 && square && plan_.bucket_order != BucketOrder::kRandom;
  scheduler_.BeginPass(
      beta ? MakeBetaOrder(plan_.num_lhs, plan_.resident_partitions, state_.seed, position.pass)
           : MakeBucketOrder(plan_.bucket_order, plan_.num_lhs, plan_.num_rhs, state_.seed,
                             position.pass),
      done);
}

bool RunCoordinator::Complete() const {
  return accounting_.has_value() && scheduler_.num_done() == scheduler_.num_buckets();
}

bool RunCoordinator::Done() const {
  const PassPosition& position = state_.position;
  const bool epoch_begins =
      position.edge_path == 0 && position.edge_chunk == 0 && state_.done.empty();
  return position.epoch >= plan_.num_epochs ||
         (epoch_begins && ShouldStop(plan_.early_stopping, state_.early_stopping));
}

RunCoordinator::SessionId RunCoordinator::Register() {
  MutexLock lock(&mu_);
  sessions_.try_emplace(++last_session_);
  return last_session_;
}

absl::StatusOr<AcquireResult> RunCoordinator::Acquire(SessionId id, const AcquireRequest& request) {
  MutexLock lock(&mu_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return absl::AbortedError("the session has ended");
  Session& session = found->second;
  if (state_.failure.has_value()) return RunHasFailed(*state_.failure);

  AcquireResult result;
  result.run_done = Done();
  if (session.grant.has_value() && request.number <= session.number) {
    if (request.number < session.number) {
      return absl::InvalidArgumentError(absl::StrCat("acquire number ", request.number, " after ",
                                                     session.number, ": numbers only grow"));
    }
    result.grant = session.grant;
  } else if (accounting_.has_value() && session.grants.size() < kMaxGrants) {
    result.grant = MakeGrant(id, request, &session);
    if (result.grant.has_value()) {
      session.number = request.number;
      session.grant = result.grant;
    }
  }
  if (accounting_.has_value()) result.remaining = scheduler_.num_buckets() - scheduler_.num_done();
  return result;
}

double RunCoordinator::EdgesPerSecond() const {
  if (plan_.edges_per_second.has_value()) return *plan_.edges_per_second;
  return trained_edges_ == 0 ? 0 : static_cast<double>(trained_edges_) / trained_seconds_;
}

Token RunCoordinator::Base(const Session& session, PartitionKey key) const {
  for (auto token = session.grants.rbegin(); token != session.grants.rend(); ++token) {
    if (Find(grants_.at(*token).bases, key) != nullptr) return *token;
  }
  return state_.versions.current(key);
}

std::optional<Grant> RunCoordinator::MakeGrant(SessionId id, const AcquireRequest& request,
                                               Session* session) {
  // Of what the session names, only what is still up to date counts.
  std::vector<PartitionKey> resident;
  for (const PartitionVersion& copy : request.resident) {
    const bool current = state_.versions.Has(copy.key) && Base(*session, copy.key) == copy.token;
    if (current && !Contains(resident, copy.key)) resident.push_back(copy.key);
  }
  std::vector<PartitionKey> unusable;
  for (const Token token : session->grants) {
    for (const PartitionVersion& base : grants_.at(token).bases) {
      if (!Contains(resident, base.key)) unusable.push_back(base.key);
    }
  }

  const Token token = last_token_ + 1;
  const PassAccounting& accounting = *accounting_;
  const double edges_to_commit = plan_.commit_seconds * EdgesPerSecond();
  const std::vector<Bucket> buckets = scheduler_.Grant(
      {id, resident, unusable}, token, [&](const std::vector<Bucket>& granted, Bucket further) {
        int64_t edges = accounting.Expected(further);
        for (const Bucket& b : granted) edges += accounting.Expected(b);
        return static_cast<double>(edges) <= edges_to_commit;
      });
  if (buckets.empty()) return std::nullopt;
  last_token_ = token;

  Grant grant;
  grant.token = token;
  grant.position = state_.position;
  for (const Bucket& b : buckets) grant.buckets.push_back({b, accounting_->Expected(b)});
  LiveGrant live = {id, buckets, {}};
  const std::vector<PartitionKey> keys = scheduler_.PartitionsOf(buckets.front());
  for (const PartitionKey& key : keys) {
    using Source = GrantedPartition::Source;
    const Token base = Base(*session, key);
    const Source source = Contains(resident, key) ? Source::kKeep
                          : base == kInitialToken ? Source::kInitialise
                                                  : Source::kRead;
    grant.partitions.push_back({key, base, source, base != state_.versions.committed(key)});
    live.bases.push_back({key, base});
  }
  grants_.emplace(token, std::move(live));
  session->grants.push_back(token);

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
  AddHint(id, *session, resident, &grant);
  return grant;
}

void RunCoordinator::AddHint(SessionId id, const Session& session,
                             const std::vector<PartitionKey>& in_memory, Grant* grant) {
  grant->hinted_bucket = scheduler_.Hint({id, in_memory, {}});
  if (!grant->hinted_bucket.has_value()) return;
  for (const PartitionKey& key : scheduler_.PartitionsOf(*grant->hinted_bucket)) {
    // As the next grant will find it: what this session is still storing counts.
    if (!Contains(in_memory, key)) grant->hint.push_back({key, Base(session, key)});
  }
}

absl::StatusOr<ReleaseResult> RunCoordinator::Release(SessionId id, const ReleaseRequest& request) {
  MutexLock lock(&mu_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return absl::AbortedError("the session has ended");
  Session& session = found->second;
  for (const Outcome& outcome : session.outcomes) {
    if (outcome.token == request.token) return outcome.result;
  }
  const auto live = grants_.find(request.token);
  if (live == grants_.end() || live->second.session != id) {
    return absl::AbortedError(absl::StrCat("grant ", request.token, " has ended"));
  }
  for (const PartitionVersion& base : live->second.bases) {
    const Token current = state_.versions.current(base.key);
    if (current == base.token) continue;
    const absl::Status refused = absl::AbortedError(
        absl::StrCat("grant ", request.token, " started from version ", base.token,
                     " of partition ", base.key.partition, " of entity type ", base.key.entity_type,
                     ", but ", current, " is current"));
    Void(request.token);
    return refused;
  }
  WEFT_RETURN_IF_ERROR(CheckRelease(request, live->second));

  absl::StatusOr<ReleaseResult> result = ReleaseLive(request, &session);
  if (result.ok()) {
    session.outcomes.push_back({request.token, result});
    if (session.outcomes.size() > kRememberedOutcomes) session.outcomes.pop_front();
  }
  return result;
}

absl::Status RunCoordinator::CheckRelease(const ReleaseRequest& request,
                                          const LiveGrant& grant) const {
  std::vector<Bucket> reported;
  for (const BucketStats& stats : request.buckets) reported.push_back(stats.bucket);
  if (!std::ranges::is_permutation(reported, grant.buckets)) {
    return absl::InvalidArgumentError(absl::StrCat("release of grant ", request.token, ": it has ",
                                                   grant.buckets.size(), " buckets, not the ",
                                                   reported.size(), " of the report"));
  }
  for (const PartitionKey& key : request.stored) {
    if (Find(grant.bases, key) != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("release of grant ", request.token, ": partition ", key.partition,
                     " of entity type ", key.entity_type, " does not belong to it"));
  }
  for (const PartitionVersion& base : grant.bases) {
    if (Contains(request.stored, base.key)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("release of grant ", request.token, ": partition ", base.key.partition,
                     " of entity type ", base.key.entity_type, " has not been stored"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ReleaseResult> RunCoordinator::ReleaseLive(const ReleaseRequest& request,
                                                          Session* session) {
  for (const BucketStats& bucket : request.buckets) {
    const absl::Status exact = accounting_->Check(bucket);
    if (exact.ok()) continue;
    WEFT_RETURN_IF_ERROR(Write(RunFailed{{bucket.bucket, std::string(exact.message())}}));
    while (!grants_.empty()) Void(grants_.begin()->first);
    return exact;
  }
  WEFT_RETURN_IF_ERROR(Write(GrantReleased{request.token, request.stored, request.buckets}));
  EndGrant(request.token, /*done=*/true);
  for (const BucketStats& bucket : request.buckets) {
    trained_edges_ += bucket.trained_edges;
    trained_seconds_ += bucket.train_seconds;
  }
  return ReleaseResult{.pass_done = Complete()};
}

absl::Status RunCoordinator::Write(const RunChange& change) {
  WEFT_RETURN_IF_ERROR(store_->Append(change));
  ApplyChange(change, &state_);
  return absl::OkStatus();
}

void RunCoordinator::EndGrant(Token token, bool done) {
  const auto found = grants_.find(token);
  Session& session = sessions_.at(found->second.session);
  std::erase(session.grants, token);
  grants_.erase(found);
  if (done) {
    scheduler_.Finish(token);
  } else {
    scheduler_.Return(token);
  }
}

void RunCoordinator::Void(Token token) {
  const SessionId id = grants_.at(token).session;
  EndGrant(token, /*done=*/false);
  // What the session was granted later may start from versions that will never be.
  const std::vector<Token> later = sessions_.at(id).grants;
  for (const Token successor : later) {
    const auto live = grants_.find(successor);
    if (live == grants_.end()) continue;
    const bool depends = std::ranges::any_of(
        live->second.bases, [&](const PartitionVersion& base) { return base.token == token; });
    if (depends) Void(successor);
  }
}

absl::Status RunCoordinator::Abandon(SessionId id, Token token) {
  MutexLock lock(&mu_);
  const auto live = grants_.find(token);
  if (live != grants_.end() && live->second.session == id) Void(token);
  return absl::OkStatus();
}

absl::Status RunCoordinator::ReportFailure(SessionId id, Token token,
                                           const TrainingFailure& failure) {
  MutexLock lock(&mu_);
  const auto live = grants_.find(token);
  if (live == grants_.end() || live->second.session != id) {
    return absl::AbortedError(absl::StrCat("grant ", token, " has ended"));
  }
  WEFT_RETURN_IF_ERROR(Write(RunFailed{failure}));
  while (!grants_.empty()) Void(grants_.begin()->first);
  return absl::OkStatus();
}

absl::Status RunCoordinator::Leave(SessionId id) {
  MutexLock lock(&mu_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return absl::OkStatus();
  while (!found->second.grants.empty()) Void(found->second.grants.front());
  scheduler_.ForgetHint(id);
  sessions_.erase(found);
  return absl::OkStatus();
}

std::optional<CompletePass> RunCoordinator::complete_pass() const {
  MutexLock lock(&mu_);
  if (!Complete()) return std::nullopt;
  CompletePass pass;
  pass.version = state_.position.pass + 1;
  pass.position = state_.position;
  const PassPosition next = NextPass(state_.position, static_cast<int>(plan_.bucket_edges.size()));
  pass.ends_epoch = next.epoch > state_.position.epoch;
  pass.buckets = state_.done;
  for (const PartitionKey& key : state_.versions.keys()) {
    pass.versions.push_back({key, state_.versions.current(key)});
  }
  return pass;
}

absl::Status RunCoordinator::PassCommitted(int64_t version) {
  MutexLock lock(&mu_);
  if (version == state_.position.pass) return absl::OkStatus();
  WEFT_CHECK(Complete() && version == state_.position.pass + 1);

  std::vector<BucketStats> stats;
  for (DoneBucket& bucket : state_.done) stats.push_back(std::move(bucket.stats));
  state_.done.clear();
  EarlyStoppingState& stopping = state_.early_stopping;
  const int64_t before[] = {state_.position.pass, stopping.best_version,
                            stopping.epoch_first_version};
  AddPass(plan_.early_stopping, stats, &stopping);
  const int epoch = state_.position.epoch;
  state_.position = NextPass(state_.position, static_cast<int>(plan_.bucket_edges.size()));
  if (state_.position.epoch > epoch) EndEpoch(plan_.early_stopping, epoch, version, &stopping);
  state_.versions.CommitAll();
  for (const int64_t old : before) {
    const bool judged = plan_.early_stopping.has_value() &&
                        (old == stopping.best_version || old == stopping.epoch_first_version);
    const auto& obsolete = state_.obsolete_versions;
    if (old == 0 || judged || std::ranges::find(obsolete, old) != obsolete.end()) continue;
    state_.obsolete_versions.push_back(old);
  }
  // Readers have switched already: when this fails, nothing is granted until the store is opened
  // again.
  accounting_.reset();
  WEFT_RETURN_IF_ERROR(store_->Replace(state_));
  BeginPass();
  return absl::OkStatus();
}

std::vector<int64_t> RunCoordinator::obsolete_versions() const {
  MutexLock lock(&mu_);
  return state_.obsolete_versions;
}

void RunCoordinator::FilesRemoved(const std::vector<int64_t>& versions) {
  MutexLock lock(&mu_);
  for (const int64_t version : versions) std::erase(state_.obsolete_versions, version);
}

KeepList RunCoordinator::keep_list() const {
  MutexLock lock(&mu_);
  KeepList list;
  list.high_water = last_token_;
  list.keep = state_.versions.Roots();
  for (const auto& [token, grant] : grants_) {
    for (const PartitionVersion& base : grant.bases) {
      list.keep.push_back({base.key, token});
      if (base.token != kInitialToken) list.keep.push_back(base);
    }
  }
  return list;
}

RunProgress RunCoordinator::progress() const {
  MutexLock lock(&mu_);
  RunProgress progress;
  progress.position = state_.position;
  progress.num_epochs = plan_.num_epochs;
  progress.done = Done();
  progress.stopped_early = progress.done && state_.position.epoch < plan_.num_epochs;
  progress.failure = state_.failure;
  progress.early_stopping = state_.early_stopping;
  for (const std::vector<int64_t>& buckets : plan_.bucket_edges) {
    progress.epoch_edges += std::accumulate(buckets.begin(), buckets.end(), int64_t{0});
  }
  if (!accounting_.has_value()) return progress;
  progress.buckets = scheduler_.num_buckets();
  progress.buckets_done = scheduler_.num_done();
  progress.edges = accounting_->expected_edges();
  for (const DoneBucket& bucket : state_.done) {
    progress.edges_done += bucket.stats.trained_edges + bucket.stats.held_out_edges;
  }
  return progress;
}

}  // namespace weft
