// Reading and writing rows of a table that is larger than the caches, at random: rows a second.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

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

void BM_GatherRows(benchmark::State& state) {
  Rows rows(state.range(0));
  int64_t i = 0;
  for (auto _ : state) GatherRows(View(rows.table), rows.Batch(i++), nullptr, rows.rows());
  state.SetItemsProcessed(state.iterations() * kRowsOfABatch);
}
BENCHMARK(BM_GatherRows)->Arg(100)->Arg(200)->Arg(400);

// Second argument: whether the table is shared, and its rows are marked when they are written.
void BM_AdagradRows(benchmark::State& state) {
  Rows rows(state.range(0));
  ChangedRows changed(static_cast<size_t>(rows.table.count()));
  EmbeddingTable table = View(rows.table);
  if (state.range(1) != 0) table.changed = changed.data();
  std::vector<RowStep> steps(kRowsOfABatch);
  int64_t i = 0;
  for (auto _ : state) {
    const auto batch = rows.Batch(i++);
    for (int32_t r = 0; r < kRowsOfABatch; ++r) steps[r] = {batch[r], r};
    AdagradRows(table, steps, rows.rows(), 0.01f);
  }
  state.SetItemsProcessed(state.iterations() * kRowsOfABatch);
}
BENCHMARK(BM_AdagradRows)->ArgsProduct({{100, 200, 400}, {0, 1}});

}  // namespace
}  // namespace weft::bench

BENCHMARK_MAIN();
