// A simulated day of a lock server, as fast as it goes: its memory and the size of its RocksDB.
//
//   lock_server_day [hours]      default 24; the folder is $TMPDIR: it should be on a real disk
//
// The logic of the lock server on its own store, and a clock that the program moves. 16 trainers
// share 32 x 32 buckets, so that a pass takes about a minute; within each pass a manifest is made,
// too. One trainer in ten minutes is lost without a word, and one leaves in good order; others take
// their places. Two partition servers and a parameter server do what they are told at once. Every
// six hours the lock server is killed and starts again from its store.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/common/check.h"
#include "services/lock_server/rocksdb_run_store.h"
#include "services/lock_server/run_codec.h"
#include "services/lock_server/run_coordinator.h"
#include "tests/lock_server/coordinator_fixture.h"
#include "tests/testing/fake_clock.h"

namespace weft {
namespace {

constexpr int kPartitions = 32;
constexpr int kTrainers = 16;
constexpr int kPartitionServers = 2;
constexpr StoreId kFirstStore = 11;
constexpr StoreId kParamStore = 21;
constexpr int64_t kRoundMs = 400;
constexpr int64_t kRoundsAnHour = 3'600'000 / kRoundMs;
constexpr int64_t kRoundsToChange = 300'000 / kRoundMs;

double Megabytes(double bytes) { return bytes / (1 << 20); }

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double size = 0;
  double resident = 0;
  statm >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double FolderBytes(const std::string& folder) {
  double bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += static_cast<double>(entry.file_size());
  }
  return bytes;
}

struct Trainer {
  SessionId session = 0;
  uint64_t number = 0;
  std::vector<PartitionVersion> resident;
  std::optional<Grant> grant;
};

class Day {
 public:
  explicit Day(std::string folder) : folder_(std::move(folder)) {
    plan_ = testing::MakePlan(kPartitions);
    plan_.bucket_order = BucketOrder::kInsideOut;
    plan_.commit_seconds = 0;
    plan_.num_epochs = 1'000'000;
    plan_.cluster.emplace();
    plan_.cluster->num_param_servers = 1;
    plan_.cluster->checkpoint_interval = std::chrono::seconds(25);
    plan_.cluster->encode_state = EncodeState;
    Start();
    for (Trainer& trainer : trainers_) Join(&trainer);
  }

  void Run(int hours) {
    std::printf("%5s %9s %10s %8s %10s %12s %12s\n", "hour", "passes", "grants", "lost",
                "manifests", "memory MB", "RocksDB MB");
    for (int64_t round = 0; round <= hours * kRoundsAnHour; ++round) {
      if (round % kRoundsAnHour == 0) Report(round / kRoundsAnHour);
      if (round > 0 && round % (6 * kRoundsAnHour) == 0) Restart();
      if (round > 0 && round % kRoundsToChange == 0) Replace(round / kRoundsToChange);
      Round(round);
    }
  }

 private:
  void Start() {
    store_ = *RocksDbRunStore::Open(folder_);
    auto stored = store_->Load();
    WEFT_CHECK(stored.ok());
    auto run = RunCoordinator::Start(plan_, stored->value_or(testing::MakeState(kPartitions)),
                                     store_.get(), clock_);
    WEFT_CHECK(run.ok());
    run_ = *std::move(run);
    SyncServers();
  }

  // As kill -9 leaves it: every round ends with a sync.
  void Restart() {
    run_.reset();
    store_.reset();
    Start();
  }

  void Join(Trainer* trainer) {
    *trainer = {};
    trainer->session = next_session_++;
    Registration registration;
    registration.incarnation = trainer->session;
    registration.name = "trainer";
    WEFT_CHECK(run_->Register(registration).ok());
  }

  // One trainer goes, in good order or without a word, and another one comes.
  void Replace(int64_t number) {
    Trainer& trainer = trainers_[static_cast<size_t>(number) % trainers_.size()];
    if (number % 2 == 0) {
      WEFT_CHECK(run_->Leave(trainer.session).ok());
    } else {
      ++lost_;
    }
    Join(&trainer);
  }

  void Round(int64_t round) {
    clock_.Advance(absl::Milliseconds(kRoundMs));
    WEFT_CHECK(run_->Tick().ok());
    if (round % 3 == 0) SyncServers();
    for (Trainer& trainer : trainers_) {
      if (round % 10 == 0) Beat(trainer);
      trainer.grant.has_value() ? Release(&trainer) : Acquire(&trainer);
    }
    run_->TakeEvents();
    WEFT_CHECK(store_->Sync().ok());
  }

  void Beat(const Trainer& trainer) {
    std::vector<Token> tokens;
    if (trainer.grant.has_value()) tokens.push_back(trainer.grant->token);
    WEFT_CHECK(run_->Heartbeat(trainer.session, tokens, ++progress_).ok());
  }

  void Acquire(Trainer* trainer) {
    auto result = run_->Acquire(trainer->session,
                                {trainer->number + 1, trainer->resident, absl::ZeroDuration()});
    WEFT_CHECK(result.ok());
    if (!result->grant.has_value()) return;
    ++trainer->number;
    ++grants_;
    trainer->grant = *std::move(result->grant);
  }

  void Release(Trainer* trainer) {
    ReleaseRequest request = testing::ReleaseOf(*trainer->grant);
    trainer->resident.clear();
    for (const PartitionKey& key : request.stored) {
      const PartitionVersion version = {key, request.token};
      request.places.push_back(Stored(version, trainer->grant->store_at.front()));
      trainer->resident.push_back(version);
    }
    WEFT_CHECK(run_->Release(trainer->session, request).ok());
    trainer->grant.reset();
  }

  static VersionInfo Stored(const PartitionVersion& version, StoreId store) {
    return {version, {{0, 0, 1000, 400'000, 1, {{store, 0}}}}};
  }

  void SyncServers() {
    for (int i = 0; i < kPartitionServers; ++i) {
      const StoreId store = kFirstStore + static_cast<StoreId>(i);
      SyncServer({ServerRole::kPartition, store, 1, "h:" + std::to_string(i), true}, nullptr);
    }
    SyncServer({ServerRole::kParam, kParamStore, 1, "h:p", true}, &params_);
  }

  // Reports until there is nothing to do; every order is done at once.
  void SyncServer(const ServerInfo& server, ParamServerState* params) {
    std::vector<OrderResult> results;
    do {
      StoreReport report{server, uint64_t{1} << 40, {}, std::exchange(results, {}), {}};
      if (params != nullptr) report.params = *params;
      auto instructions = run_->Sync(report);
      WEFT_CHECK(instructions.ok());
      for (const NumberedOrder& order : instructions->orders) {
        results.push_back(Obey(order, server.store_id, params));
      }
    } while (!results.empty());
  }

  static OrderResult Obey(const NumberedOrder& order, StoreId self, ParamServerState* params) {
    OrderResult result;
    result.order_id = order.id;
    if (const auto* restore = std::get_if<RestoreParameters>(&order.order)) {
      params->generation = restore->generation;
      params->first_open_pass = restore->first_open_pass;
    } else if (const auto* cut = std::get_if<CutParameters>(&order.order)) {
      params->first_open_pass = cut->first_open_pass;
    } else if (const auto* snapshot = std::get_if<StoreSnapshot>(&order.order)) {
      result.stored = Stored(snapshot->version, snapshot->store_at.front());
    } else if (const auto* manifest = std::get_if<StoreManifest>(&order.order)) {
      result.stored = Stored(manifest->version, self);
    } else if (const auto* copy = std::get_if<CopyShard>(&order.order)) {
      result.stored = VersionInfo{copy->version, {copy->shard}};
      result.stored->shards.front().places = {{self, 0}};
    }
    return result;
  }

  void Report(int64_t hour) {
    const RunMetrics metrics = run_->metrics();
    const RunView view = run_->View(false);
    std::printf("%5d %9d %10d %8d %10zu %12.1f %12.1f\n", static_cast<int>(hour),
                static_cast<int>(metrics.position.pass), static_cast<int>(grants_),
                static_cast<int>(lost_), view.manifests.size(), Megabytes(ResidentBytes()),
                Megabytes(FolderBytes(folder_)));
    std::fflush(stdout);
  }

  const std::string folder_;
  RunPlan plan_;
  testing::FakeClock clock_;
  std::unique_ptr<RocksDbRunStore> store_;
  std::unique_ptr<RunCoordinator> run_;
  ParamServerState params_;
  std::vector<Trainer> trainers_ = std::vector<Trainer>(kTrainers);
  SessionId next_session_ = 1000;
  uint64_t progress_ = 0;
  int64_t grants_ = 0;
  int64_t lost_ = 0;
};

int Main(int hours) {
  const char* base = std::getenv("TMPDIR");
  const std::string folder = std::string(base == nullptr ? "/tmp" : base) + "/weft_lock_day";
  std::filesystem::remove_all(folder);
  Day(folder).Run(hours);
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc > 1 ? std::atoi(argv[1]) : 24); }
