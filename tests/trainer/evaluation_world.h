// A model small enough to rank by brute force, whose entities can be dealt to any number of
// partitions: what the tests of ranking are made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/check.h"
#include "services/common/random.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/ranking.h"

namespace weft::testing {

// Tables in memory, which know how many of them are held at once.
class MemoryTables final : public PartitionReader {
 public:
  explicit MemoryTables(std::vector<std::vector<FloatBlock>> tables) : tables_(std::move(tables)) {}

  absl::StatusOr<std::shared_ptr<const FloatBlock>> Read(PartitionKey key) override {
    ++reads_;
    most_held_ = std::max(most_held_, ++held_);
    return std::shared_ptr<const FloatBlock>(&tables_[key.entity_type][key.partition],
                                             [this](const FloatBlock*) { --held_; });
  }

  FloatBlock& table(PartitionKey key) { return tables_[key.entity_type][key.partition]; }
  int reads() const { return reads_; }
  int most_held() const { return most_held_; }

 private:
  std::vector<std::vector<FloatBlock>> tables_;
  int reads_ = 0;
  int held_ = 0;
  int most_held_ = 0;
};

// Entities of each type by their own ids, whatever their partitions.
struct World {
  ModelSpec spec;
  ParameterSet parameters;
  std::vector<FloatBlock> vectors;  // by type: [count, dimension]
  std::vector<IndexedEdge> edges;   // evaluated; ends are entity ids
  std::vector<IndexedEdge> known;   // further true edges
};

// The same world with the entities of every type dealt to `num_partitions` partitions.
struct PartitionedWorld {
  explicit PartitionedWorld(const World& world, int num_partitions)
      : numbers(world.vectors.size()), index({}), tables({}) {
    std::vector<std::vector<int64_t>> counts;
    std::vector<std::vector<FloatBlock>> blocks;
    for (size_t type = 0; type < world.vectors.size(); ++type) {
      const FloatBlock& all = world.vectors[type];
      std::vector<std::vector<int64_t>> members(num_partitions);
      for (int64_t id = 0; id < all.rows(); ++id) {
        const uint64_t dealt = static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u >> 33;
        members[dealt % static_cast<uint64_t>(num_partitions)].push_back(id);
      }
      numbers[type].resize(all.rows());
      int64_t next = 0;
      counts.emplace_back();
      blocks.emplace_back();
      for (const std::vector<int64_t>& ids : members) {
        FloatBlock& block =
            blocks.back().emplace_back(static_cast<int64_t>(ids.size()), all.cols());
        for (size_t i = 0; i < ids.size(); ++i) {
          std::ranges::copy(all.row(ids[i]), block.row(static_cast<int64_t>(i)).data());
          numbers[type][ids[i]] = next++;
        }
        counts.back().push_back(static_cast<int64_t>(ids.size()));
      }
    }
    index = EntityIndex(counts);
    tables = MemoryTables(std::move(blocks));
    edges = Renumber(world, world.edges);
    known = Renumber(world, world.known);
  }

  std::vector<IndexedEdge> Renumber(const World& world, const std::vector<IndexedEdge>& from) {
    std::vector<IndexedEdge> to = from;
    for (IndexedEdge& edge : to) {
      const RelationSpec& relation = world.spec.relation(edge.rel);
      edge.lhs = numbers[relation.lhs][edge.lhs];
      edge.rhs = numbers[relation.rhs][edge.rhs];
    }
    return to;
  }

  // Ranks the world's edges with its known edges as filter.
  absl::StatusOr<std::vector<EdgeCounts>> Rank(const World& world, const RankingOptions& options,
                                               std::span<const Side> sides = kSides) {
    const RankingQueries queries(world.spec, edges, sides);
    EdgeFilter filter(queries);
    filter.Add(known);
    filter.Finish();
    return RankEdges(world.spec, world.parameters, index, &tables, queries, filter,
                     static_cast<int64_t>(edges.size()), options);
  }

  std::vector<std::vector<int64_t>> numbers;  // [type][entity id]: its number in `index`
  EntityIndex index;
  MemoryTables tables;
  std::vector<IndexedEdge> edges;
  std::vector<IndexedEdge> known;
};

// Values for tables and operators: multiples of 1/4, so that float scores are exact and ties many.
inline void FillWithQuarters(std::mt19937* random, std::span<float> values) {
  for (float& value : values) value = static_cast<float>(static_cast<int>((*random)() % 9) - 4) / 4;
}
inline void FillWithNormals(std::mt19937* random, std::span<float> values) {
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(*random);
}

// Dynamic relations with diagonal operators over one entity type.
template <typename Fill>
World MakeDynamicWorld(uint32_t seed, int64_t num_entities, int64_t num_relations, int dimension,
                       int64_t num_edges, Comparator comparator, Fill fill) {
  std::mt19937 random(seed);
  World world;
  world.spec.entity_types = {{"all", dimension}};
  world.spec.relations = {
      {.name = "all", .lhs = 0, .rhs = 0, .op = Operator::kDiagonal, .operator_name = "diagonal"}};
  world.spec.num_dynamic_relations = num_relations;
  world.spec.comparator = comparator;
  world.spec.global_emb = false;
  world.parameters = MakeInitialParameters(world.spec);
  for (Parameter& parameter : world.parameters.all()) fill(&random, parameter.values.span());
  fill(&random, world.vectors.emplace_back(num_entities, dimension).span());
  for (int64_t i = 0; i < 2 * num_edges; ++i) {
    // Half of the ends come from few entities, so that questions are shared.
    auto entity = [&] {
      const auto few = static_cast<uint32_t>(std::min<int64_t>(7, num_entities));
      return static_cast<int64_t>(random() %
                                  (random() % 2 == 0 ? few : static_cast<uint32_t>(num_entities)));
    };
    const IndexedEdge edge{
        entity(), entity(),
        static_cast<RelationTypeId>(random() % static_cast<uint32_t>(num_relations))};
    (i % 2 == 0 ? world.edges : world.known).push_back(edge);
  }
  return world;
}

// Ranks by definition, in double, for worlds with diagonal operators or none.
inline std::vector<EdgeCounts> RankByBruteForce(const World& world,
                                                std::span<const Side> sides = kSides) {
  const ModelSpec& spec = world.spec;
  auto vector_of = [&](EntityTypeId type, int64_t id, const float* diagonal) {
    const std::span<const float> row = world.vectors[type].row(id);
    std::vector<double> v(row.begin(), row.end());
    for (size_t k = 0; diagonal != nullptr && k < v.size(); ++k) v[k] *= diagonal[k];
    return v;
  };
  auto diagonal_of = [&](RelationTypeId rel, Side side) -> const float* {
    if (spec.relation(rel).op != Operator::kDiagonal) return nullptr;
    const bool dynamic = spec.dynamic();
    const Parameter* parameter = world.parameters.Find(
        OperatorParameterName(dynamic ? 0 : rel, side, dynamic ? "diagonals" : "diagonal"));
    return parameter->values.row(dynamic ? rel : 0).data();
  };
  auto score = [&](const std::vector<double>& a, const std::vector<double>& b) {
    double dot = 0;
    double squared = 0;
    for (size_t k = 0; k < a.size(); ++k) {
      dot += a[k] * b[k];
      squared += (a[k] - b[k]) * (a[k] - b[k]);
    }
    WEFT_CHECK(spec.comparator == Comparator::kDot || spec.comparator == Comparator::kSquaredL2);
    return spec.comparator == Comparator::kDot ? dot : -squared;
  };
  std::vector<EdgeCounts> counts(world.edges.size());
  for (size_t e = 0; e < world.edges.size(); ++e) {
    const IndexedEdge& edge = world.edges[e];
    for (const Side corrupted : sides) {
      const Side given = Opposite(corrupted);
      const RelationSpec& relation = spec.relation(edge.rel);
      auto type_of = [&](Side side) { return side == Side::kLhs ? relation.lhs : relation.rhs; };
      const bool on_query = spec.dynamic() || given == Side::kRhs;
      const bool on_candidates = !spec.dynamic() && corrupted == Side::kRhs;
      const std::vector<double> query = vector_of(
          type_of(given), edge.entity(given), on_query ? diagonal_of(edge.rel, given) : nullptr);
      auto score_of = [&](int64_t candidate) {
        return score(query, vector_of(type_of(corrupted), candidate,
                                      on_candidates ? diagonal_of(edge.rel, corrupted) : nullptr));
      };
      auto is_known = [&](int64_t candidate) {
        auto same = [&](const IndexedEdge& other) {
          return other.rel == edge.rel && other.entity(given) == edge.entity(given) &&
                 other.entity(corrupted) == candidate;
        };
        return std::ranges::any_of(world.edges, same) || std::ranges::any_of(world.known, same);
      };
      const double own = score_of(edge.entity(corrupted));
      const int side = static_cast<int>(corrupted);
      for (int64_t c = 0; c < world.vectors[type_of(corrupted)].rows(); ++c) {
        if (c == edge.entity(corrupted)) continue;
        const double theirs = score_of(c);
        auto count = [&](CandidateCounts* to) {
          ++to->candidates;
          to->above += theirs > own ? 1 : 0;
          to->ties += theirs == own ? 1 : 0;
        };
        count(&counts[e].raw[side]);
        if (!is_known(c)) count(&counts[e].filtered[side]);
      }
    }
  }
  return counts;
}

}  // namespace weft::testing
