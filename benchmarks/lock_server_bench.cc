// Durable changes of a lock server's state a second: P = 1,024, 400 trainers that acquire and
// release through the RunLoop, on a RocksDB whose every batch is synced.
//
// A grant and a release are a change each. The folder is $TMPDIR: it should be on a real disk.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "services/common/check.h"
#include "services/common/mutex.h"
#include "services/lock_server/rocksdb_run_store.h"
#include "services/lock_server/run_loop.h"
#include "tests/lock_server/coordinator_fixture.h"

namespace weft {
namespace {

constexpr int kPartitions = 1024;
constexpr StoreId kStore = 11;

class Trainers {
 public:
  Trainers(RunCoordinator* run, RunLoop* loop, int count, int64_t changes)
      : run_(run), loop_(loop), left_(changes), running_(count) {
    for (int i = 0; i < count; ++i) {
      Registration registration;
      registration.incarnation = static_cast<SessionId>(1000 + i);
      registration.name = std::to_string(i);
      WEFT_CHECK(run->Register(registration).ok());
      trainers_.push_back({registration.incarnation, 0, {}});
    }
  }

  void Run() {
    for (size_t i = 0; i < trainers_.size(); ++i) Acquire(i);
    MutexLock lock(&mu_);
    while (running_ > 0) done_.Wait(&mu_);
  }

 private:
  struct Trainer {
    SessionId session;
    uint64_t number;
    std::vector<PartitionVersion> resident;
  };

  bool Stop() {
    if (left_-- > 0) return false;
    MutexLock lock(&mu_);
    if (--running_ == 0) done_.SignalAll();
    return true;
  }

  void Acquire(size_t i) {
    if (Stop()) return;
    loop_->Submit(
        [this, i](bool last) -> std::optional<RunLoop::Answer> {
          Trainer& trainer = trainers_[i];
          auto result = run_->Acquire(trainer.session,
                                      {trainer.number + 1, trainer.resident, absl::ZeroDuration()});
          WEFT_CHECK(result.ok());
          if (!result->grant.has_value() && !last) return std::nullopt;
          WEFT_CHECK(result->grant.has_value());
          return [this, i, grant = *std::move(result->grant)] { Release(i, grant); };
        },
        SteadyTime::max());
  }

  void Release(size_t i, const Grant& grant) {
    ++trainers_[i].number;
    if (Stop()) return;
    ReleaseRequest request = testing::ReleaseOf(grant);
    trainers_[i].resident.clear();
    for (const PartitionKey& key : request.stored) {
      const PartitionVersion version = {key, grant.token};
      request.places.push_back({version, {{0, 0, 1000, 400000, 1, {{kStore, 0}}}}});
      trainers_[i].resident.push_back(version);
    }
    loop_->Submit([this, i, request = std::move(request)](bool) -> std::optional<RunLoop::Answer> {
      WEFT_CHECK(run_->Release(trainers_[i].session, request).ok());
      return [this, i] { Acquire(i); };
    });
  }

  RunCoordinator* const run_;
  RunLoop* const loop_;
  std::vector<Trainer> trainers_;
  std::atomic<int64_t> left_;
  Mutex mu_;
  CondVar done_;
  int running_;
};

void BM_DurableChanges(benchmark::State& state) {
  const char* base = std::getenv("TMPDIR");
  const std::string folder = std::string(base == nullptr ? "/tmp" : base) + "/weft_lock_bench";
  const auto changes = static_cast<int64_t>(state.range(1));
  for (auto _ : state) {
    state.PauseTiming();
    std::filesystem::remove_all(folder);
    auto store = *RocksDbRunStore::Open(folder);
    RunPlan plan = testing::MakePlan(kPartitions);
    plan.bucket_order = BucketOrder::kInsideOut;
    plan.commit_seconds = 0;
    plan.cluster.emplace();
    auto run = *RunCoordinator::Start(plan, testing::MakeState(kPartitions), store.get());
    WEFT_CHECK(run->Sync({{ServerRole::kPartition, kStore, 1, "h:1", true}, 1, {}, {}, {}}).ok());
    {
      RunLoop loop(run.get(), store.get(), Clock::Real(),
                   [](const absl::Status&) { WEFT_CHECK(false); });
      Trainers trainers(run.get(), &loop, static_cast<int>(state.range(0)), changes);
      state.ResumeTiming();
      trainers.Run();
      state.PauseTiming();
    }
    run.reset();
    store.reset();
    std::filesystem::remove_all(folder);
    state.ResumeTiming();
  }
  state.SetItemsProcessed(changes * static_cast<int64_t>(state.iterations()));
}
BENCHMARK(BM_DurableChanges)
    ->ArgNames({"trainers", "changes"})
    ->Args({400, 200000})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1)
    ->Repetitions(3)
    ->UseRealTime();

}  // namespace
}  // namespace weft
