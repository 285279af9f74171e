// Ranking all candidates for every edge, as `weft eval` does: time, scores per second and the
// arithmetic of the scores alone (2 x dimension operations each). The work has the shape of
// FB15k-237's test set: 20,466 edges, 14,541 entities, 237 relations, both sides, filtered by
// 289,650 further edges; questions that edges share are scored once.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "services/common/random.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/ranking.h"

namespace weft {
namespace {

constexpr int64_t kEntities = 14541;
constexpr int64_t kRelations = 237;
constexpr int64_t kEdges = 20466;
constexpr int64_t kKnownEdges = 289650;

class OneTable final : public PartitionReader {
 public:
  explicit OneTable(std::shared_ptr<const FloatBlock> table) : table_(std::move(table)) {}
  absl::StatusOr<std::shared_ptr<const FloatBlock>> Read(PartitionKey) override { return table_; }

 private:
  std::shared_ptr<const FloatBlock> table_;
};

// Few entities and relations in most edges, as in real graphs.
std::vector<IndexedEdge> SkewedEdges(int64_t count, uint64_t stream) {
  RandomStream random(1, RandomUse::kTest, stream);
  auto skewed = [&](int64_t bound) {
    return std::min(bound - 1, static_cast<int64_t>(static_cast<double>(bound) *
                                                    std::pow(random.Uniform(), 7)));
  };
  std::vector<IndexedEdge> edges;
  for (int64_t i = 0; i < count; ++i) {
    edges.push_back(
        {skewed(kEntities), skewed(kEntities), static_cast<RelationTypeId>(skewed(kRelations))});
  }
  return edges;
}

void BM_RankAllCandidates(benchmark::State& state) {
  const auto dimension = static_cast<int>(state.range(0));
  const auto num_threads = static_cast<int>(state.range(1));
  ModelSpec spec;
  spec.entity_types = {{"all", dimension}};
  spec.relations = {{.name = "all", .op = Operator::kComplexDiagonal}};
  spec.num_dynamic_relations = kRelations;
  spec.comparator = Comparator::kDot;
  spec.global_emb = false;
  const ParameterSet parameters = MakeInitialParameters(spec);
  OneTable table(std::make_shared<FloatBlock>(
      MakeInitialEmbeddings(1, {0, 0}, kEntities, dimension, 0.1).embeddings.Clone()));
  const EntityIndex entities(std::vector<std::vector<int64_t>>{{kEntities}});
  const std::vector<IndexedEdge> edges = SkewedEdges(kEdges, 1);
  const std::vector<IndexedEdge> known = SkewedEdges(kKnownEdges, 2);

  int64_t questions = 0;
  for (auto _ : state) {
    const RankingQueries queries(spec, edges, kSides);
    EdgeFilter filter(queries);
    filter.Add(known);
    filter.Finish();
    RankingOptions options;
    options.num_threads = num_threads;
    const auto counts =
        RankEdges(spec, parameters, entities, &table, queries, filter, kEdges, options);
    if (!counts.ok()) {
      state.SkipWithError(std::string(counts.status().message()).c_str());
      return;
    }
    benchmark::DoNotOptimize(counts->data());
    questions = static_cast<int64_t>(queries.queries().size());
  }
  const double scores = static_cast<double>(state.iterations() * questions * kEntities);
  state.counters["questions"] = static_cast<double>(questions);
  state.counters["scores/s"] = benchmark::Counter(scores, benchmark::Counter::kIsRate);
  state.counters["flop/s"] =
      benchmark::Counter(scores * 2 * dimension, benchmark::Counter::kIsRate);
}
BENCHMARK(BM_RankAllCandidates)
    ->ArgNames({"dimension", "threads"})
    ->Args({100, 1})
    ->Args({400, 1})
    ->Args({400, 2})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace weft
