// Random inputs and settings, compared with an importer written the obvious way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "graph/stable_partition.h"
#include "tests/graph/import_fixture.h"
#include "tests/testing/test_seed.h"

namespace weft {
namespace {

using testing::IsOk;
using testing::NamedEdge;

struct TextEdge {
  std::string lhs, rel, rhs;
  float weight;
  auto operator<=>(const TextEdge&) const = default;
};

// What should come out.
struct Expected {
  std::map<std::pair<std::string, PartitionId>, std::vector<std::string>> names;
  std::vector<std::string> relations;
  // By input and bucket.
  std::vector<std::map<Bucket, std::vector<NamedEdge>>> edges;
  std::vector<std::map<Bucket, std::vector<float>>> weights;
};

class ImportPropertyTest : public testing::ImportFixture {
 protected:
  const DatasetSchema::Relation& RelationOf(const std::string& name) const {
    for (const DatasetSchema::Relation& relation : options_.schema.relations) {
      if (options_.schema.dynamic_relations || relation.name == name) return relation;
    }
    ADD_FAILURE() << name;
    std::abort();
  }

  Expected Model(const std::vector<std::vector<TextEdge>>& inputs) const {
    const auto types = [&](const TextEdge& e) {
      const DatasetSchema::Relation& relation = RelationOf(e.rel);
      return std::pair(options_.schema.entities[relation.lhs],
                       options_.schema.entities[relation.rhs]);
    };
    std::map<std::string, int64_t> relation_counts;
    for (const auto& input : inputs) {
      for (const TextEdge& e : input) ++relation_counts[e.rel];
    }
    const auto relation_kept = [&](const TextEdge& e) {
      return relation_counts[e.rel] >= options_.rare.relation_min_count;
    };
    std::map<std::pair<std::string, std::string>, int64_t> entity_counts;
    for (const auto& input : inputs) {
      for (const TextEdge& e : input) {
        if (!relation_kept(e)) continue;
        ++entity_counts[{types(e).first.name, e.lhs}];
        ++entity_counts[{types(e).second.name, e.rhs}];
      }
    }
    Expected expected;
    if (!options_.schema.dynamic_relations) {
      for (const auto& relation : options_.schema.relations) {
        expected.relations.push_back(relation.name);
      }
    }
    std::set<std::pair<std::string, std::string>> placed;
    const auto place = [&](const DatasetSchema::EntityType& type, const std::string& name) {
      const PartitionId p = StablePartition(type.name, name, type.num_partitions);
      if (entity_counts[{type.name, name}] >= options_.rare.entity_min_count &&
          placed.emplace(type.name, name).second) {
        expected.names[{type.name, p}].push_back(name);
      }
      return p;
    };
    for (const auto& input : inputs) {
      auto& edges = expected.edges.emplace_back();
      auto& weights = expected.weights.emplace_back();
      std::set<NamedEdge> seen;
      for (const TextEdge& e : input) {
        if (!relation_kept(e)) continue;
        if (options_.schema.dynamic_relations &&
            std::ranges::find(expected.relations, e.rel) == expected.relations.end()) {
          expected.relations.push_back(e.rel);
        }
        const Bucket bucket = {place(types(e).first, e.lhs), place(types(e).second, e.rhs)};
        if (!placed.contains({types(e).first.name, e.lhs}) ||
            !placed.contains({types(e).second.name, e.rhs})) {
          continue;
        }
        if (options_.drop_duplicates && !seen.emplace(e.lhs, e.rel, e.rhs).second) continue;
        edges[bucket].emplace_back(e.lhs, e.rel, e.rhs);
        weights[bucket].push_back(e.weight);
      }
    }
    return expected;
  }

  void ExpectImported(const Expected& expected) const {
    EXPECT_EQ(RelationNames(), expected.relations);
    for (const DatasetSchema::EntityType& type : options_.schema.entities) {
      for (PartitionId p = 0; p < type.num_partitions; ++p) {
        const auto names = expected.names.find({type.name, p});
        EXPECT_EQ(Names(type.name, p),
                  names == expected.names.end() ? std::vector<std::string>() : names->second);
      }
    }
    const bool weighted = options_.parser.format.column(EdgeField::kWeight) >= 0;
    for (size_t input = 0; input < expected.edges.size(); ++input) {
      for (PartitionId lhs = 0; lhs < options_.schema.NumPartitions(Side::kLhs); ++lhs) {
        for (PartitionId rhs = 0; rhs < options_.schema.NumPartitions(Side::kRhs); ++rhs) {
          const Bucket bucket = {lhs, rhs};
          const bool any = expected.edges[input].contains(bucket);
          ASSERT_EQ(Edges(input, bucket),
                    any ? expected.edges[input].at(bucket) : std::vector<NamedEdge>());
          if (weighted && any) {
            ASSERT_EQ(ReadBucket(input, bucket).weight, expected.weights[input].at(bucket));
          }
        }
      }
    }
  }
};

TEST_F(ImportPropertyTest, AgreesWithTheObviousImporterForAnyThreadsAndMemory) {
  const auto seed = static_cast<uint32_t>(testing::TestSeed([] { return std::random_device()(); }));
  SCOPED_TRACE(::testing::Message() << "WEFT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const auto chance = [&](uint32_t one_in) { return random() % one_in == 0; };

  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    const int p = 1 + random() % 5;
    options_.schema.entities = {{"user", chance(2) ? p : 1}, {"item", p}};
    options_.schema.relations = {{"r0", 0, 1}, {"r1", 1, 0}, {"r2", 0, 0}};
    options_.schema.dynamic_relations = chance(2);
    const bool weighted = chance(2);
    options_.parser.format.columns = {0, 2, 1, weighted ? 3 : LineFormat::kNoColumn};
    options_.drop_duplicates = chance(2);
    options_.rare = {};
    if (chance(2)) options_.rare.entity_min_count = random() % 4;
    if (chance(2)) options_.rare.relation_min_count = random() % 4000;
    options_.force = true;
    options_.threads = 1 + random() % 4;
    options_.memory_bytes = int64_t{chance(2) ? 64 : 4096} << 20;
    options_.inputs.clear();
    options_.edge_paths.clear();
    const uint32_t num_names = 2 + random() % 3000;
    std::vector<std::vector<TextEdge>> inputs;
    for (uint32_t input = 0; input < 1 + random() % 3; ++input) {
      auto& edges = inputs.emplace_back();
      std::string text;
      for (uint32_t n = random() % 30'000; n > 0; --n) {
        TextEdge e = {std::to_string(random() % num_names), "r" + std::to_string(random() % 3),
                      std::to_string(random() % num_names), 1};
        text += e.lhs + "\t" + e.rel + "\t" + e.rhs;
        if (weighted) {
          e.weight = static_cast<float>(random() % 100) / 4;
          text += "\t" + std::to_string(e.weight);
        }
        text += "\n";
        edges.push_back(std::move(e));
      }
      AddInput(text);
    }

    ASSERT_THAT(Run(), IsOk());

    ExpectImported(Model(inputs));
    if (HasFailure()) return;
  }
}

TEST_F(ImportPropertyTest, ThreadsChangeNoByte) {
  std::mt19937 random(7);
  std::string text;
  for (int i = 0; i < 100'000; ++i) {
    text += "n" + std::to_string(random() % 20'000) + "\tr1\tn" +
            std::to_string(random() % 20'000) + "\n";
  }
  options_.schema.entities = {{"node", 3}};
  AddInput(text);
  options_.threads = 1;
  ASSERT_THAT(Run(), IsOk());
  const auto one_thread = DataTree();

  options_.threads = 5;
  options_.force = true;
  ASSERT_THAT(Run(), IsOk());

  for (const auto& [name, bytes] : DataTree()) {
    // HDF5 files hold the time of their making.
    if (name.ends_with(".json") || name.ends_with(".txt")) {
      if (name.ends_with(DatasetManifest::kFileName)) continue;
      EXPECT_EQ(bytes, one_thread.at(name)) << name;
    }
  }
  for (PartitionId lhs = 0; lhs < 3; ++lhs) {
    EXPECT_GT(ReadBucket(0, {lhs, 0}).size(), 0);
  }
}

}  // namespace
}  // namespace weft
