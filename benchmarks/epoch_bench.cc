// One epoch of training on a generated graph with the skew of real ones: edges a second, the share
// of the GEMM roofline, and what all that is not the batch step costs (the same with a step that
// does nothing).

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmarks/bench_roofline.h"
#include "services/common/check.h"
#include "services/common/embedding_partition.h"
#include "services/common/random.h"
#include "services/trainer/bucket_trainer.h"
#include "services/trainer/fused/fused_batch_step.h"
#include "services/trainer/model/model_parameters.h"

namespace weft::bench {
namespace {

// The size of cnr-2000.
constexpr int64_t kNumEntities = 325'557;
constexpr int64_t kNumEdges = 3'216'152;
constexpr int kDimension = 100;

ModelSpec MakeSpec() {
  ModelSpec spec;
  spec.entity_types = {{"node", kDimension}};
  spec.relations.push_back({.name = "link"});
  spec.comparator = Comparator::kDot;
  spec.loss = Loss::kSoftmax;
  spec.global_emb = false;
  spec.lr = 0.1f;
  return spec;
}

// An entity by a power law: density ~ 1 / rank^0.8, ranks scattered over the table.
EntityOffset DrawEntity(RandomStream* random) {
  const auto rank =
      static_cast<uint64_t>(std::pow(random->Uniform(), 5.0) * static_cast<double>(kNumEntities));
  return static_cast<EntityOffset>(rank * 0x9E3779B97F4A7C15u % kNumEntities);
}

const GroupedEdges& PowerLawGraph() {
  static const GroupedEdges graph = [] {
    PackedEdges edges(kNumEdges, /*with_relations=*/false, /*weighted=*/false);
    RandomStream random(1, RandomUse::kTest);
    for (int64_t i = 0; i < kNumEdges; ++i) {
      const EntityOffset lhs = DrawEntity(&random);
      edges.Append({lhs, DrawEntity(&random)});
    }
    return GroupEdges(std::move(edges), /*dynamic_relations=*/false);
  }();
  return graph;
}

// What the loop around the step costs.
class NoStep : public BatchStep {
 public:
  absl::StatusOr<BatchStats> Train(const EdgeBatch& batch, const SampledNegatives& negatives,
                                   const BatchTables&) override {
    benchmark::DoNotOptimize(batch.lhs.data());
    benchmark::DoNotOptimize(negatives.lhs.data());
    return BatchStats{.count = batch.size()};
  }
  absl::StatusOr<BatchStats> Score(const EdgeBatch&, const SampledNegatives&, const BatchTables&,
                                   BatchScores*) override {
    return BatchStats();
  }
  absl::StatusOr<BatchGradients> Gradients(const EdgeBatch&, const SampledNegatives&,
                                           const BatchTables&) override {
    return BatchGradients();
  }
};

class NoStepFactory : public BatchStepFactory {
 public:
  absl::StatusOr<ParameterSet> MakeParameters(const ModelSpec& spec) const override {
    return MakeInitialParameters(spec);
  }
  absl::StatusOr<std::unique_ptr<BatchStep>> Make(const ModelSpec&, ParameterSet*) const override {
    return std::make_unique<NoStep>();
  }
};

void BM_Epoch(benchmark::State& state, const BatchStepFactory& factory, bool with_roofline) {
  const auto threads = static_cast<int>(state.range(0));
  const GroupedEdges& graph = PowerLawGraph();
  const ModelSpec spec = MakeSpec();
  HogwildPool pool(threads);
  ParameterSet parameters = MakeInitialParameters(spec);
  const auto trainer = BucketTrainer::Create(
      factory, {.train_spec = spec, .eval_spec = spec, .evaluates = false, .seed = 1}, &parameters,
      &pool);
  WEFT_CHECK(trainer.ok());
  EmbeddingPartition table =
      MakeInitialEmbeddings(1, {0, 0}, kNumEntities, kDimension, /*init_scale=*/1e-3);
  const std::vector<BatchTables> tables = {{View(table), View(table)}};

  int64_t epoch = 0;
  double loss = 0;
  for (auto _ : state) {
    const auto result = (*trainer)->Train({epoch++, {0, 0}, &tables}, graph, {});
    WEFT_CHECK(result.ok());
    state.SetIterationTime(result->seconds);
    loss = result->stats.metrics.at("loss");
  }
  const auto edges = static_cast<double>(kNumEdges * state.iterations());
  state.counters["edges/s"] = benchmark::Counter(edges, benchmark::Counter::kIsRate);
  if (!with_roofline) return;
  state.counters["loss"] = loss;
  const StepShape shape;
  const double roofline = RooflineGflops(shape, threads);
  state.counters["roofline_GFLOP/s"] = roofline;
  state.counters["share"] = benchmark::Counter(edges * shape.FlopsPerEdge() / (roofline * 1e9),
                                               benchmark::Counter::kIsRate);
}

const bool registered = [] {
  static const FusedBatchStepFactory fused;
  static const NoStepFactory nothing;
  auto add = [](const char* name, const BatchStepFactory& factory, bool with_roofline) {
    benchmark::RegisterBenchmark(name,
                                 [&factory, with_roofline](benchmark::State& state) {
                                   BM_Epoch(state, factory, with_roofline);
                                 })
        ->ArgName("threads")
        ->Arg(1)
        ->Arg(2)
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  add("epoch_dot_softmax_d100_50+50", fused, true);
  add("epoch_without_the_step", nothing, false);
  return true;
}();

}  // namespace
}  // namespace weft::bench

BENCHMARK_MAIN();
