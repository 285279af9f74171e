// Reading and writing rows of a table that is larger than the caches, at random: rows and edges a
// second, and the latter beside the GEMM roofline.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "benchmarks/bench_counters.h"
#include "services/common/changed_rows.h"
#include "services/common/embedding_partition.h"
#include "services/common/random.h"
#include "services/trainer/kernels/row_ops.h"

namespace weft::bench {
namespace {

constexpr int64_t kEntities = 325'557;  // as cnr-2000
constexpr int64_t kRowsOfABatch = 3'000;

struct Rows {
  EmbeddingPartition table;
  FloatBlock block;
  std::vector<EntityOffset> offsets;

  explicit Rows(int64_t dim) : table(kEntities, dim), block(kRowsOfABatch, RowStride(dim)) {
    RandomStream random(1, RandomUse::kTest);
    for (int64_t i = 0; i < 100 * kRowsOfABatch; ++i) {
      offsets.push_back(static_cast<EntityOffset>(random.Below(kEntities)));
    }
    for (float& x : block.span()) x = random.Normal();
    // Memory of its own for every row.
    for (float& x : table.embeddings.span()) x = 0.5f;
    for (float& x : table.adagrad_sums.span()) x = 0.5f;
  }
  RowBlock rows() { return {block.data(), kRowsOfABatch, table.dimension(), block.cols()}; }
  std::span<const EntityOffset> Batch(int64_t i) const {
    return std::span(offsets).subspan(static_cast<size_t>(i % 100 * kRowsOfABatch), kRowsOfABatch);
  }
};

// Uniform negatives of a side and chunk that go with the dimension: 50 + 50, 500 or 1000.
int64_t UniformNegatives(int64_t dimension) {
  return dimension <= 100 ? 50 : dimension <= 200 ? 500 : 1000;
}

void CountRows(benchmark::State& state, double cpu_seconds) {
  const int64_t dimension = state.range(0);
  const int64_t uniform = UniformNegatives(dimension);
  const StepShape shape{.candidates = 50 + uniform, .dimension = dimension};
  const int64_t rows = state.iterations() * kRowsOfABatch;
  state.SetItemsProcessed(rows);
  // Of an edge: its ends, and its part of what its chunk samples for either side.
  const double rows_per_edge =
      2 * (1 + static_cast<double>(uniform) / static_cast<double>(shape.positives));
  CountEdges(state, shape, static_cast<double>(rows) / rows_per_edge, cpu_seconds);
}

void BM_GatherRows(benchmark::State& state) {
  Rows rows(state.range(0));
  int64_t i = 0;
  const double start = ThreadCpuSeconds();
  for (auto _ : state) GatherRows(View(rows.table), rows.Batch(i++), nullptr, rows.rows());
  CountRows(state, ThreadCpuSeconds() - start);
}
BENCHMARK(BM_GatherRows)->ArgName("dimension")->Arg(100)->Arg(200)->Arg(400);

// Second argument: whether the table is shared, and its rows are marked when they are written.
void BM_AdagradRows(benchmark::State& state) {
  Rows rows(state.range(0));
  ChangedRows changed(static_cast<size_t>(rows.table.count()));
  EmbeddingTable table = View(rows.table);
  if (state.range(1) != 0) table.changed = changed.data();
  std::vector<RowStep> steps(kRowsOfABatch);
  int64_t i = 0;
  const double start = ThreadCpuSeconds();
  for (auto _ : state) {
    const auto batch = rows.Batch(i++);
    for (int32_t r = 0; r < kRowsOfABatch; ++r) steps[r] = {batch[r], r};
    AdagradRows(table, steps, rows.rows(), 0.01f);
  }
  CountRows(state, ThreadCpuSeconds() - start);
}
BENCHMARK(BM_AdagradRows)
    ->ArgNames({"dimension", "shared"})
    ->ArgsProduct({{100, 200, 400}, {0, 1}});

}  // namespace
}  // namespace weft::bench

BENCHMARK_MAIN();
