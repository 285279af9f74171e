// What the tests of whole imports share: inputs in a temporary folder, and the result read back as
// names.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "graph/edge_bucket_file.h"
#include "graph/entity_files.h"
#include "graph/import/importer.h"
#include "graph/stable_partition.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft::testing {

// (lhs, relation, rhs), by name.
using NamedEdge = std::tuple<std::string, std::string, std::string>;

class ImportFixture : public ::testing::Test {
 protected:
  // One entity type `node`, relations r1 and r2 between them, columns lhs, rel, rhs.
  ImportFixture() {
    options_.schema.entities = {{"node", 1}};
    options_.schema.relations = {{"r1", 0, 0}, {"r2", 0, 0}};
    options_.entity_path = folder_.File("data");
    options_.parser.format.columns = {0, 2, 1, LineFormat::kNoColumn};
    options_.threads = 2;
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_.File(name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // Makes `text` the next input; its edge path is data/edges0, data/edges1, ...
  void AddInput(const std::string& text) {
    const std::string number = std::to_string(options_.inputs.size());
    options_.inputs.push_back(Write("input" + number + ".tsv", text));
    options_.edge_paths.push_back(folder_.File("data/edges" + number));
  }

  absl::StatusOr<ImportReport> Run() const { return Import(options_); }

  std::vector<std::string> Names(const std::string& type, int partition) const {
    auto names = ReadEntityNames(options_.entity_path, type, partition);
    EXPECT_THAT(names, IsOk());
    return names.ok() ? *names : std::vector<std::string>();
  }
  std::vector<std::string> RelationNames() const {
    auto names = ReadRelationNames(options_.entity_path);
    EXPECT_THAT(names, IsOk());
    return names.ok() ? *names : std::vector<std::string>();
  }

  EdgeList ReadBucket(size_t input, Bucket bucket) const {
    const std::string& path = options_.edge_paths[input];
    const absl::StatusOr<int64_t> count = CountEdges(path, bucket);
    EXPECT_THAT(count, IsOk());
    const std::vector<std::string> relations = RelationNames();
    std::vector<int64_t> lhs_counts;
    std::vector<int64_t> rhs_counts;
    std::vector<uint8_t> featurized[2];
    for (const DatasetSchema::Relation& relation : options_.schema.relations) {
      lhs_counts.push_back(CountOf(relation.lhs, bucket.lhs));
      rhs_counts.push_back(CountOf(relation.rhs, bucket.rhs));
      if (!options_.schema.featurized()) continue;
      featurized[0].push_back(options_.schema.entities[relation.lhs].featurized ? 1 : 0);
      featurized[1].push_back(options_.schema.entities[relation.rhs].featurized ? 1 : 0);
    }
    if (options_.schema.dynamic_relations) {
      lhs_counts.resize(1);
      rhs_counts.resize(1);
    }
    auto edges = ReadEdges(path, bucket, 0, *count,
                           {.num_relations = static_cast<int64_t>(relations.size()),
                            .lhs_counts = lhs_counts,
                            .rhs_counts = rhs_counts,
                            .lhs_featurized = featurized[0],
                            .rhs_featurized = featurized[1]});
    EXPECT_THAT(edges, IsOk());
    return edges.ok() ? *edges : EdgeList();
  }

  // The edges of a bucket, in order. A featurized entity is "{first+second+...}".
  std::vector<NamedEdge> Edges(size_t input, Bucket bucket = {}) const {
    const EdgeList edges = ReadBucket(input, bucket);
    const std::vector<std::string> relations = RelationNames();
    NamesByPartition names;
    std::vector<NamedEdge> named;
    for (int64_t i = 0; i < edges.size(); ++i) {
      const DatasetSchema::Relation& relation =
          options_.schema.relations[options_.schema.dynamic_relations ? 0 : edges.rel[i]];
      const auto name = [&](Side side) {
        const EntityTypeId type = relation.side(side);
        if (!options_.schema.entities[type].featurized) {
          return NameOf(type, bucket.partition(side), edges.ids(side)[i], &names);
        }
        EXPECT_EQ(edges.ids(side)[i], EdgeList::kFeaturized);
        std::string features;
        for (const EntityOffset feature : edges.features[static_cast<int>(side)][i]) {
          features +=
              (features.empty() ? "" : "+") + NameOf(type, bucket.partition(side), feature, &names);
        }
        return "{" + features + "}";
      };
      named.emplace_back(name(Side::kLhs), relations[edges.rel[i]], name(Side::kRhs));
    }
    return named;
  }

  // Every file below a folder and its bytes (of HDF5 files, their hash).
  static std::map<std::string, std::string> Tree(const std::string& folder) {
    std::map<std::string, std::string> files;
    if (!std::filesystem::exists(folder)) return files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      std::string bytes(std::istreambuf_iterator<char>(in), {});
      if (entry.path().extension() == ".h5") bytes = std::to_string(HashBytes(bytes));
      files[std::filesystem::relative(entry.path(), folder)] = std::move(bytes);
    }
    return files;
  }
  std::map<std::string, std::string> DataTree() const { return Tree(options_.entity_path); }

  TempDir folder_;
  ImportOptions options_;

 private:
  using NamesByPartition = std::map<std::pair<std::string, PartitionId>, std::vector<std::string>>;

  int64_t CountOf(EntityTypeId type, PartitionId partition) const {
    const DatasetSchema::EntityType& entity = options_.schema.entities[type];
    if (partition >= entity.num_partitions) return 0;
    auto count = ReadEntityCount(options_.entity_path, entity.name, partition);
    EXPECT_THAT(count, IsOk());
    return count.ok() ? *count : 0;
  }
  std::string NameOf(EntityTypeId type, PartitionId partition, EntityOffset offset,
                     NamesByPartition* names) const {
    const std::string& name = options_.schema.entities[type].name;
    auto [known, is_new] = names->try_emplace({name, partition});
    if (is_new) known->second = Names(name, partition);
    return known->second[offset];
  }
};

}  // namespace weft::testing
