// One batch of the fused step, on one and two threads, over a generated graph with the skew of real
// ones: edges a second, edges a second of one thread's processor time, and, from the latter, the
// share of the GEMM roofline.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/bench_roofline.h"
#include "services/common/check.h"
#include "services/common/embedding_partition.h"
#include "services/common/random.h"
#include "services/trainer/fused/fused_batch_step.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/negative_sampler.h"

namespace weft::bench {
namespace {

struct Setup {
  const char* name;
  Comparator comparator;
  Loss loss;
  Operator op;
  int64_t num_dynamic_relations;
  int dimension;
  int num_uniform_negs;
  int64_t num_entities;
  bool all_negs = false;
};

// As cnr-2000 (325,557 pages) and FB15k-237 (14,541 entities, 237 relations).
constexpr Setup kSetups[] = {
    {"dot_softmax_d100_50+50", Comparator::kDot, Loss::kSoftmax, Operator::kNone, 0, 100, 50,
     325'557},
    {"cos_ranking_d100_50+50", Comparator::kCos, Loss::kRanking, Operator::kNone, 0, 100, 50,
     325'557},
    {"complex_dynamic_softmax_d200_50+500", Comparator::kDot, Loss::kSoftmax,
     Operator::kComplexDiagonal, 237, 200, 500, 14'541},
    {"complex_dynamic_softmax_d400_50+1000", Comparator::kDot, Loss::kSoftmax,
     Operator::kComplexDiagonal, 237, 400, 1000, 14'541},
    {"complex_dynamic_softmax_d200_all", Comparator::kDot, Loss::kSoftmax,
     Operator::kComplexDiagonal, 237, 200, 0, 14'541, /*all_negs=*/true},
};

constexpr int64_t kNumEdges = 200'000;

// What all threads share.
struct World {
  ModelSpec spec;
  ParameterSet parameters;
  EmbeddingPartition table;
  std::vector<EntityOffset> lhs, rhs;
  std::vector<RelationTypeId> rel;
};

// A rank drawn by a power law (density ~ 1 / x^0.8), scattered over the table.
EntityOffset DrawEntity(RandomStream* random, int64_t count) {
  const double u = random->Uniform();
  const auto rank = static_cast<int64_t>(std::pow(u, 5.0) * static_cast<double>(count));
  return static_cast<EntityOffset>(static_cast<uint64_t>(rank) * 0x9E3779B97F4A7C15u %
                                   static_cast<uint64_t>(count));
}

World* MakeWorld(const Setup& setup) {
  static std::map<std::string, std::unique_ptr<World>> worlds;
  std::unique_ptr<World>& world = worlds[setup.name];
  if (world != nullptr) return world.get();
  world = std::make_unique<World>();
  ModelSpec& spec = world->spec;
  spec.entity_types = {{"node", setup.dimension}};
  spec.relations.push_back(
      {.name = "link", .op = setup.op, .operator_name = "built in", .all_negs = setup.all_negs});
  spec.num_dynamic_relations = setup.num_dynamic_relations;
  spec.comparator = setup.comparator;
  spec.loss = setup.loss;
  spec.global_emb = false;
  spec.num_uniform_negs = setup.num_uniform_negs;
  spec.lr = 0.1f;
  world->parameters = MakeInitialParameters(spec);
  world->table = MakeInitialEmbeddings(1, {0, 0}, setup.num_entities, setup.dimension, 1e-3);
  RandomStream random(1, RandomUse::kTest);
  for (int64_t i = 0; i < kNumEdges; ++i) {
    world->lhs.push_back(DrawEntity(&random, setup.num_entities));
    world->rhs.push_back(DrawEntity(&random, setup.num_entities));
    world->rel.push_back(
        setup.num_dynamic_relations == 0 ? 0 : DrawEntity(&random, setup.num_dynamic_relations));
  }
  return world.get();
}

void BM_Batch(benchmark::State& state, const Setup& setup) {
  static World* world = nullptr;
  if (state.thread_index() == 0) world = MakeWorld(setup);
  std::unique_ptr<BatchStep> step;
  SampledNegatives negatives;
  int64_t batch = state.thread_index();
  int64_t batch_size = 0;
  double cpu_seconds = 0;
  for (auto _ : state) {
    if (step == nullptr) {
      step = FusedBatchStepFactory().Make(world->spec, &world->parameters).value();
      batch_size = world->spec.batch_size;
      cpu_seconds = -ThreadCpuSeconds();
    }
    const int64_t first = batch * batch_size % kNumEdges;
    const auto count = static_cast<size_t>(batch_size);
    const EdgeBatch edges{.lhs = std::span(world->lhs).subspan(first, count),
                          .rhs = std::span(world->rhs).subspan(first, count),
                          .rel = std::span(world->rel).subspan(first, count),
                          .weight = {}};
    SampleNegatives(world->spec, 0, batch_size, world->table.count(), world->table.count(),
                    {.seed = 1, .pass = 0, .bucket = {}, .batch = batch}, &negatives);
    const auto stats = step->Train(edges, negatives, {View(world->table), View(world->table)});
    WEFT_CHECK(stats.ok());
    benchmark::DoNotOptimize(stats->loss);
    batch += state.threads();
  }
  cpu_seconds += ThreadCpuSeconds();
  const auto edges = static_cast<double>(state.iterations() * batch_size);
  // Summed over the threads by the library.
  state.counters["edges/s"] = benchmark::Counter(edges, benchmark::Counter::kIsRate);
  if (state.thread_index() != 0) return;
  StepShape shape{
      .positives = 50, .candidates = 50 + setup.num_uniform_negs, .dimension = setup.dimension};
  if (setup.all_negs) {
    shape.positives = batch_size;
    shape.candidates = setup.num_entities;
  }
  const double roofline = RooflineGflops(shape, state.threads());
  const double per_cpu_second = edges / cpu_seconds;
  state.counters["edges/cpu_s"] = per_cpu_second;
  state.counters["roofline_GFLOP/s"] = roofline;
  state.counters["share"] =
      per_cpu_second * shape.FlopsPerEdge() / (roofline / state.threads() * 1e9);
}

const bool registered = [] {
  for (const Setup& setup : kSetups) {
    benchmark::RegisterBenchmark(setup.name,
                                 [&setup](benchmark::State& state) { BM_Batch(state, setup); })
        ->Threads(1)
        ->Threads(2)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace weft::bench

BENCHMARK_MAIN();
