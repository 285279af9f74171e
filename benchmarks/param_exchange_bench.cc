// The exchange of shared parameters: what a push costs a server, with memory and RocksDB behind it,
// what a round costs a trainer, and what finding the changed rows of a large table does.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "services/common/check.h"
#include "services/common/random.h"
#include "services/param_server/memory_push_log.h"
#include "services/param_server/parameter_sync.h"
#include "services/param_server/rocksdb_push_log.h"
#include "services/param_server/row_block_store.h"

namespace weft::bench {
namespace {

constexpr int64_t kDim = 100;
const ParamCaller kCaller = {{"run", 0, 0, 1}, 7};

SharedState MakeState(int64_t rows) {
  SharedState state;
  state.unpartitioned.emplace_back(rows, kDim);
  state.TrackChanges();
  return state;
}

// A table of `rows` rows on one server.
struct World {
  World(int64_t rows, PushLog* log) : state(MakeState(rows)), sync(&state, {}) {
    store = *RowBlockStore::Open({100}, log);
    WEFT_CHECK(store
                   ->Install({"run", 1, sync.layout(), 0, 1}, 0,
                             [](RowTable*) -> absl::StatusOr<int64_t> { return 0; })
                   .ok());
    std::optional<JoinRequest> request = sync.BeginJoin(0, kCaller);
    while (request) request = *sync.AcceptPage(0, *store->Join(*request));
  }
  void Change(int64_t row) {
    for (float& f : state.unpartitioned[0].embeddings.row(row)) f += 1;
    state.unpartitioned[0].adagrad_sums.data()[row] += 1;
    MarkChanged(state.unpartitioned_changed[0].data(), row);
  }
  int64_t Exchange(bool flush) {
    sync.Collect();
    int64_t bytes = 0;
    do {
      const PushRequest& push = sync.NextPush(0, 0, flush);
      bytes += static_cast<int64_t>(push.rows.Bytes());
      WEFT_CHECK(sync.Merge(0, *store->Push(push)).ok());
    } while (sync.num_queued(0) > 0);
    return bytes;
  }

  SharedState state;
  ParameterSync sync;
  std::unique_ptr<RowBlockStore> store;
};

// range(0): rows that change between two exchanges, of 200,000.
void Exchange(benchmark::State& state, PushLog* log, bool flush) {
  constexpr int64_t kRows = 200'000;
  World world(kRows, log);
  RandomStream random(1, RandomUse::kTest);
  int64_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    for (int64_t i = 0; i < state.range(0); ++i) world.Change(random.Below(kRows));
    state.ResumeTiming();
    bytes += world.Exchange(flush);
  }
  state.SetBytesProcessed(bytes);
}

void BM_ExchangeMemory(benchmark::State& state) {
  MemoryPushLog log;
  Exchange(state, &log, false);
}
BENCHMARK(BM_ExchangeMemory)->Arg(10)->Arg(5'000)->Unit(benchmark::kMicrosecond);

void BM_ExchangeRocksDb(benchmark::State& state) {
  const std::string folder = std::filesystem::temp_directory_path().string() + "/weft_param_bench";
  std::filesystem::remove_all(folder);
  {
    auto log = RocksDbPushLog::Open(folder);
    WEFT_CHECK(log.ok());
    Exchange(state, log->get(), state.range(1) != 0);
  }
  std::filesystem::remove_all(folder);
}
// The second argument: whether each exchange is a flush.
BENCHMARK(BM_ExchangeRocksDb)->ArgsProduct({{10, 5'000}, {0, 1}})->Unit(benchmark::kMicrosecond);

// Nothing has changed in a table of so many rows.
void BM_CollectMarks(benchmark::State& state) {
  SharedState shared;
  shared.unpartitioned.emplace_back(state.range(0), 1);
  shared.TrackChanges();
  ParameterSync sync(&shared, {});
  for (auto _ : state) sync.Collect();
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_CollectMarks)->Arg(10'000'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace weft::bench

BENCHMARK_MAIN();
