// The losses over a tile of scores: scores a second, forward and backward together.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>

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
  for (auto _ : state) {
    const int64_t violators = kind == Kind::kRanking    ? RankingLoss(tile, 0.1f)
                              : kind == Kind::kLogistic ? LogisticLoss(tile, 0.01f)
                                                        : SoftmaxLoss(tile);
    benchmark::DoNotOptimize(violators);
  }
  state.SetItemsProcessed(state.iterations() * negatives * queries);
}

// The default configuration's tile, and larger ones.
void Tiles(benchmark::internal::Benchmark* b) {
  b->Args({100, 50})->Args({550, 50})->Args({1050, 50})->Args({512, 1000});
}
BENCHMARK_CAPTURE(BM_Loss, ranking, Kind::kRanking)->Apply(Tiles);
BENCHMARK_CAPTURE(BM_Loss, logistic, Kind::kLogistic)->Apply(Tiles);
BENCHMARK_CAPTURE(BM_Loss, softmax, Kind::kSoftmax)->Apply(Tiles);

}  // namespace
}  // namespace weft::bench

BENCHMARK_MAIN();
