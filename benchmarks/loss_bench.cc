// The losses over a tile of scores, forward and backward together: scores and edges a second, and
// the latter beside the GEMM roofline.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>

#include "benchmarks/bench_counters.h"
#include "services/common/float_block.h"
#include "services/common/random.h"
#include "services/trainer/kernels/loss_ops.h"

namespace weft::bench {
namespace {

enum class Kind { kRanking, kLogistic, kSoftmax };

void BM_Loss(benchmark::State& state, Kind kind) {
  const int64_t negatives = state.range(0);
  const int64_t queries = state.range(1);
  const int64_t stride = RowStride(queries);
  FloatBlock scores(negatives, stride);
  FloatBlock grads(negatives, stride);
  FloatBlock columns(4, stride);
  RandomStream random(1, RandomUse::kTest);
  for (float& x : scores.span()) x = random.Normal();
  std::ranges::fill(columns.row(1), 1.0f);
  const LossTile tile{.scores = {scores.data(), negatives, queries, stride},
                      .grads = {grads.data(), negatives, queries, stride},
                      .pos = columns.row(0).data(),
                      .weight = columns.row(1).data(),
                      .pos_grad = columns.row(2).data(),
                      .loss = columns.row(3).data()};
  const double start = ThreadCpuSeconds();
  for (auto _ : state) {
    const int64_t violators = kind == Kind::kRanking    ? RankingLoss(tile, 0.1f)
                              : kind == Kind::kLogistic ? LogisticLoss(tile, 0.01f)
                                                        : SoftmaxLoss(tile);
    benchmark::DoNotOptimize(violators);
  }
  const double seconds = ThreadCpuSeconds() - start;
  state.SetItemsProcessed(state.iterations() * negatives * queries);
  // A tile is of one side.
  const StepShape shape{.positives = queries, .candidates = negatives, .dimension = state.range(2)};
  CountEdges(state, shape,
             static_cast<double>(state.iterations() * queries) / static_cast<double>(shape.sides),
             seconds);
}

// The default configuration's tile, and larger ones, with the dimensions that go with them.
void Tiles(benchmark::internal::Benchmark* b) {
  b->ArgNames({"negatives", "queries", "dimension"});
  b->Args({100, 50, 100})->Args({550, 50, 200})->Args({1050, 50, 400})->Args({512, 1000, 200});
}
BENCHMARK_CAPTURE(BM_Loss, ranking, Kind::kRanking)->Apply(Tiles);
BENCHMARK_CAPTURE(BM_Loss, logistic, Kind::kLogistic)->Apply(Tiles);
BENCHMARK_CAPTURE(BM_Loss, softmax, Kind::kSoftmax)->Apply(Tiles);

}  // namespace
}  // namespace weft::bench

BENCHMARK_MAIN();
