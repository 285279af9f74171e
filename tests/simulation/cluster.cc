#include "tests/simulation/cluster.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/lock_server/run_codec.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/graph.h"
#include "tests/simulation/lock_process.h"
#include "tests/simulation/param_process.h"
#include "tests/simulation/partition_process.h"
#include "tests/simulation/trainer_process.h"

namespace weft::simulation {
namespace {

// How long a run may take once there are no faults any more.
constexpr Duration kQuietTime = Seconds(900);
constexpr uint32_t kFaultKinds = 13;

class Cluster {
 public:
  Cluster(uint64_t seed, Weakened weakened, bool verbose);

  RunResult Run();

 private:
  RunPlan MakePlan();
  RunState MakeState() const;
  bool Done() const;
  std::string Describe() const;
  void CheckParameters();

  // Faults (until `faults_end_`; each run has some kinds of them).
  void FaultLater();
  void MakeFault();
  Process* AnyProcess();
  PartitionProcess* AnyStore() { return stores_[world_.Below(stores_.size())].get(); }
  void DamageBlob(PartitionProcess* store);
  void LoseDisk(PartitionProcess* store);
  void ForgetLater(StoreId store);
  void EndFaults();
  void StartTrainersAgain();

  World world_;
  const Weakened weakened_;
  const Graph graph_;
  Addresses addresses_;
  Checker checker_{&world_, &graph_, &addresses_};
  const int num_stores_;
  const int num_params_;
  const int num_trainers_;
  const Duration lease_;
  const double drift_;  // of clocks
  const int64_t num_epochs_;
  std::unique_ptr<LockProcess> lock_;
  std::vector<std::unique_ptr<PartitionProcess>> stores_;
  std::vector<std::unique_ptr<ParamProcess>> params_;
  std::vector<std::unique_ptr<TrainerProcess>> trainers_;
  std::vector<Process*> processes_;

  uint32_t fault_kinds_;
  Duration faults_end_;
  Duration fault_interval_;
  uint32_t disk_faults_left_;
  bool faults_over_ = false;
  int64_t kills_ = 0;
};

Cluster::Cluster(uint64_t seed, Weakened weakened, bool verbose)
    : world_(seed),
      weakened_(weakened),
      graph_(&world_, static_cast<int>(2 + world_.Below(3)), 2 + world_.Below(3)),
      num_stores_(static_cast<int>(1 + world_.Below(3))),
      num_params_(static_cast<int>(world_.Below(3))),
      num_trainers_(static_cast<int>(1 + world_.Below(3))),
      lease_(world_.Between(Seconds(3), Seconds(8))),
      drift_(world_.Chance(0.5) ? 0.1 : 0),
      num_epochs_(2 + world_.Below(2)),
      fault_kinds_(world_.Below(1 << kFaultKinds)),
      faults_end_(world_.Between(Seconds(10), Seconds(60))),
      fault_interval_(world_.Between(Milliseconds(500), Seconds(8))),
      disk_faults_left_(world_.Chance(0.3) ? 1 + world_.Below(4) : 0) {
  world_.set_verbose(verbose);
  const auto rate = [&] { return 1 + drift_ * (2 * (world_.Below(1001) / 1000.0) - 1); };
  lock_ = std::make_unique<LockProcess>(&world_, rate(), MakePlan(), MakeState(), &checker_);
  lock_->answers_before_sync = weakened_ == Weakened::kLockAnswersUnsynced;
  addresses_.lock = lock_.get();
  const uint32_t in_memory = world_.Below(3);  // none, some, all
  for (int i = 0; i < num_stores_; ++i) {
    const bool memory = in_memory == 2 || (in_memory == 1 && world_.Chance(0.5));
    stores_.push_back(std::make_unique<PartitionProcess>(&world_, absl::StrCat("store", i), rate(),
                                                         memory, &addresses_));
    PartitionProcess& store = *stores_.back();
    store.sweeps_all = weakened_ == Weakened::kSweepsEverything;
    store.disk().answers_before_sync = weakened_ == Weakened::kBlobsAnsweredUnsynced;
    addresses_.partitions[store.name()] = &store;
  }
  for (int i = 0; i < num_params_; ++i) {
    params_.push_back(std::make_unique<ParamProcess>(&world_, absl::StrCat("params", i), rate(),
                                                     graph_.buckets.size(), &addresses_));
    addresses_.params[params_.back()->name()] = params_.back().get();
  }
  TrainerProcess::Options options;
  if (world_.Chance(0.5)) options.message_bytes = 64;
  options.releases_unflushed = weakened_ == Weakened::kReleasesUnflushed;
  options.lease = lease_;
  options.shard_bytes = world_.Chance(0.5) ? 1 << 20 : 16 + world_.Below(30);
  options.resident = 2 + world_.Below(3);
  options.names_trained_copies = weakened_ == Weakened::kNamesTrainedCopies;
  options.trains_what_is_stored = weakened_ == Weakened::kTrainsWhatIsStored;
  for (int i = 0; i < num_trainers_; ++i) {
    trainers_.push_back(std::make_unique<TrainerProcess>(&world_, absl::StrCat("trainer", i),
                                                         rate(), &graph_, &addresses_, options));
  }
  processes_.push_back(lock_.get());
  for (const auto& store : stores_) processes_.push_back(store.get());
  for (const auto& params : params_) processes_.push_back(params.get());
  for (const auto& trainer : trainers_) processes_.push_back(trainer.get());
}

RunPlan Cluster::MakePlan() {
  RunPlan plan;
  plan.num_lhs = plan.num_rhs = graph_.partitions;
  plan.partitioned_types = {{.id = 0, .lhs = true, .rhs = true, .bytes = 100}};
  constexpr BucketOrder kOrders[] = {BucketOrder::kRandom, BucketOrder::kAffinity,
                                     BucketOrder::kInsideOut, BucketOrder::kOutsideIn};
  plan.bucket_order = kOrders[world_.Below(4)];
  plan.resident_partitions = static_cast<int>(2 + world_.Below(2));
  plan.commit_seconds = world_.Below(2) * 5;
  plan.edges_per_second = 1;
  plan.num_epochs = static_cast<int>(num_epochs_);
  plan.bucket_edges = {graph_.BucketEdges()};
  ClusterOptions& options = plan.cluster.emplace();
  options.lease = lease_;
  options.stall_timeout = Seconds(60);
  options.max_bucket_attempts = 0;
  options.partition_replicas =
      static_cast<int>(1 + world_.Below(static_cast<uint32_t>(std::min(2, num_stores_))));
  // Else an operator says what is lost.
  const bool by_silence = disk_faults_left_ > 0 && world_.Chance(0.3);
  options.store_lost_after = by_silence ? world_.Between(Seconds(25), Seconds(60)) : Duration{};
  // Manifests at the stores keep one more for the run.
  if (world_.Chance(0.5)) options.encode_state = EncodeState;
  options.checkpoint_interval = world_.Between(Seconds(4), Seconds(30));
  options.num_param_servers = num_params_;
  return plan;
}

RunState Cluster::MakeState() const {
  RunState state;
  state.run_id = "0123456789abcdef0123456789abcdef";
  state.seed = 7;
  RunShape::EntityType& user = state.shape.entity_types.emplace_back();
  user.name = "user";
  user.dimension = kDimension;
  user.num_partitions = graph_.partitions;
  user.counts.assign(static_cast<size_t>(graph_.partitions), graph_.rows);
  state.edge_paths = {{"edges", 0}};
  state.versions = VersionTable({graph_.partitions});
  return state;
}

Process* Cluster::AnyProcess() {
  return processes_[world_.Below(static_cast<uint32_t>(processes_.size()))];
}

void Cluster::FaultLater() {
  world_.After(world_.Between(Duration{}, 2 * fault_interval_), [this] {
    if (world_.now() > faults_end_) return EndFaults();
    MakeFault();
    FaultLater();
  });
}

void Cluster::MakeFault() {
  const uint32_t kind = world_.Below(kFaultKinds);
  if ((fault_kinds_ >> kind & 1) == 0) return;
  Process* const process = AnyProcess();
  switch (kind) {
    case 0:
    case 1:
      if (process->up()) ++kills_;
      process->Kill();
      break;
    case 2:
      process->Freeze(world_.Between(Milliseconds(100), 2 * lease_));
      break;
    case 3:
      world_.Cut(process, AnyProcess(), world_.now() + world_.Between(Seconds(1), 2 * lease_));
      break;
    case 4:
      trainers_[world_.Below(static_cast<uint32_t>(trainers_.size()))]->Terminate();
      break;
    case 5:
      AnyStore()->Terminate();
      break;
    case 6: {
      PartitionProcess* const store = AnyStore();
      store->Fill(world_.Below(200));
      world_.After(world_.Between(Seconds(1), Seconds(10)), [store] { store->MakeRoom(); });
      break;
    }
    case 7:
      AnyStore()->disk().fails = true;
      break;
    case 8:
      lock_->disk_full = true;
      world_.After(world_.Between(Seconds(1), Seconds(5)), [this] { lock_->disk_full = false; });
      break;
    case 9:
      if (params_.empty()) break;
      checker_.pushes_were_lost = true;
      params_[world_.Below(static_cast<uint32_t>(params_.size()))]->FailMachine();
      break;
    case 10:
      process->SetClockRate(1 + drift_ * (2 * (world_.Below(1001) / 1000.0) - 1));
      break;
    case 11:
      if (disk_faults_left_ > 0) DamageBlob(AnyStore());
      break;
    case 12:
      if (disk_faults_left_ > 0) LoseDisk(AnyStore());
      break;
  }
}

void Cluster::DamageBlob(PartitionProcess* store) {
  const std::optional<ShardName> name = store->disk().Damage(world_.Below(1 << 20));
  if (!name.has_value()) return;
  --disk_faults_left_;
  world_.Log(store, absl::StrCat("has a damaged blob: ", ToString(*name)));
  checker_.Hurt(name->version);
}

void Cluster::LoseDisk(PartitionProcess* store) {
  --disk_faults_left_;
  for (const auto& [name, blob] : store->disk().blobs) checker_.Hurt(name.version);
  const StoreId lost = store->store_id();
  store->LoseDisk();
  if (lock_->plan().cluster->store_lost_after == Duration{}) ForgetLater(lost);
}

// The operator says so until it is durable.
void Cluster::ForgetLater(StoreId store) {
  world_.After(world_.Between(Seconds(1), Seconds(10)), [this, store] {
    if (checker_.Retired(store)) return;
    if (lock_->up() && lock_->run() != nullptr) {
      lock_->Serve<bool>(
          lock_->run()->context(), Duration{},
          [store](RunCoordinator* run, bool) -> std::optional<absl::StatusOr<bool>> {
            const absl::Status forgotten = run->ForgetStore(store);
            if (!forgotten.ok()) return forgotten;
            return true;
          },
          [](const auto&) {});
    }
    ForgetLater(store);
  });
}

// A run that was done may have to go back: somebody has to train again.
void Cluster::StartTrainersAgain() {
  if (lock_->run() == nullptr || lock_->run()->phase() == RunPhase::kDone) return;
  for (const auto& trainer : trainers_) {
    if (trainer->finished() && !trainer->up()) trainer->StartAgain();
  }
}

void Cluster::EndFaults() {
  world_.Log(nullptr, "no faults from here on");
  faults_over_ = true;
  world_.network() = {};
  world_.EndCuts();
  lock_->killed_in_sync = 0;
  for (const auto& store : stores_) store->disk().fails = false;
}

bool Cluster::Done() const {
  if (!faults_over_ || lock_->run() == nullptr) return false;
  for (const auto& trainer : trainers_) {
    if (!trainer->finished() || trainer->up()) return false;
  }
  for (const auto& params : params_) {
    if (!params->up()) return false;
  }
  return lock_->run()->phase() == RunPhase::kDone;
}

std::string Cluster::Describe() const {
  std::string text;
  for (const Process* process : processes_) {
    if (!process->up()) absl::StrAppend(&text, process->name(), " is not there; ");
  }
  if (lock_->run() == nullptr) return text;
  const RunView view = lock_->run()->View(true);
  absl::StrAppend(&text, "phase ", static_cast<int>(view.phase), " ", view.reason, ", pass ",
                  view.progress.position.pass, ", ", view.progress.buckets_done, " of ",
                  view.progress.buckets,
                  " buckets done, silent servers: ", view.silent_servers.size());
  for (const TrainerView& trainer : view.trainers) {
    absl::StrAppend(&text, "; ", trainer.name, " has ", trainer.buckets.size(), " buckets");
  }
  return text;
}

void Cluster::CheckParameters() {
  std::vector<double> counts(graph_.buckets.size());
  for (const auto& params : params_) {
    if (!params->AddCounts(&counts)) return world_.Fail("a parameter server has nothing");
  }
  std::vector<int64_t> trained(graph_.buckets.size());
  for (const auto& trainer : trainers_) {
    for (size_t b = 0; b < trained.size(); ++b) trained[b] += trainer->figures().trained[b];
  }
  checker_.CheckCounts(counts, trained);
}

RunResult Cluster::Run() {
  World::Network& network = world_.network();
  if (world_.Chance(0.5)) network.lost = 0.001 * world_.Below(60);
  if (world_.Chance(0.5)) network.repeated = 0.001 * world_.Below(60);
  if (world_.Chance(0.5)) network.slow = 0.001 * world_.Below(150);
  network.slow_delay = world_.Between(Milliseconds(10), 2 * lease_);
  if (world_.Chance(0.3)) lock_->killed_in_sync = 0.001 * world_.Below(20);
  for (Process* process : processes_) {
    world_.After(world_.Between(Duration{}, Seconds(1)), [process] { process->Start(); });
  }
  FaultLater();
  uint64_t events = 0;
  bool nothing_left = false;
  while (world_.failure().empty() && !(events++ % 64 == 0 && Done())) {
    if (!world_.Step() || world_.now() > faults_end_ + kQuietTime) {
      world_.Fail(absl::StrCat("the run did not come to its end: ", Describe()));
    }
    if (events % 64 == 0) StartTrainersAgain();
    if (!checker_.state().failure.has_value()) continue;
    nothing_left = checker_.FailureIsRight();
    if (nothing_left) break;
    world_.Fail(absl::StrCat("the run has failed: ", checker_.state().failure->reason));
  }
  if (world_.failure().empty() && !nothing_left) checker_.CheckEnd(num_epochs_);
  if (world_.failure().empty() && !nothing_left && !params_.empty()) CheckParameters();
  RunResult result;
  result.failure = world_.failure();
  result.nothing_left = nothing_left;
  result.kills = kills_;
  result.passes = checker_.passes();
  result.edges = checker_.edges();
  result.rewinds = checker_.rewinds();
  for (const auto& trainer : trainers_) {
    result.trained += trainer->figures().trained_edges;
    result.sessions += trainer->figures().sessions;
  }
  result.seconds = std::chrono::duration<double>(world_.now()).count();
  result.fingerprint = world_.fingerprint();
  return result;
}

}  // namespace

RunResult SimulateRun(uint64_t seed, Weakened weakened, bool verbose) {
  return Cluster(seed, weakened, verbose).Run();
}

}  // namespace weft::simulation
