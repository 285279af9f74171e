#include "services/trainer/local/local_data.h"

#include <xxhash.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/dataset_manifest.h"
#include "graph/edge_bucket_file.h"
#include "graph/entity_files.h"
#include "services/common/status_macros.h"

namespace weft {

int64_t LocalData::LargestBucket() const {
  int64_t largest = 0;
  for (const EdgePath& path : edge_paths) {
    for (const int64_t edges : path.bucket_edges) largest = std::max(largest, edges);
  }
  return largest;
}

int64_t LocalData::LargestBucketFeatures() const {
  int64_t largest = 0;
  for (const EdgePath& path : edge_paths) {
    for (const int64_t features : path.bucket_features) largest = std::max(largest, features);
  }
  return largest;
}

int LocalData::NumEdgeChunks(int64_t max_edges_per_chunk) const {
  const int64_t largest = LargestBucket();
  return static_cast<int>(
      std::max<int64_t>(1, (largest + max_edges_per_chunk - 1) / max_edges_per_chunk));
}

bool IsTrained(const RunConfig& config, EntityTypeId type) {
  return config.UsesEntityType(type, Side::kLhs) || config.UsesEntityType(type, Side::kRhs);
}

namespace {

void SetDigest(uint64_t import_id, LocalData::EdgePath* edges) {
  edges->digest = XXH3_64bits_withSeed(edges->bucket_edges.data(),
                                       edges->bucket_edges.size() * sizeof(int64_t), import_id);
}

absl::StatusOr<LocalData::EdgePath> ReadEdgePath(const std::string& path, int num_lhs,
                                                 int num_rhs) {
  LocalData::EdgePath edges;
  edges.bucket_edges.resize(static_cast<size_t>(num_lhs) * static_cast<size_t>(num_rhs));
  const auto at = [&](Bucket b) -> int64_t& {
    return edges.bucket_edges[static_cast<size_t>(b.lhs) * static_cast<size_t>(num_rhs) +
                              static_cast<size_t>(b.rhs)];
  };
  const absl::StatusOr<DatasetManifest> manifest = ReadManifest(path);
  if (manifest.ok()) {
    for (const DatasetManifest::BucketCount& bucket : manifest->buckets) {
      const Bucket b = bucket.bucket;
      if (b.lhs < 0 || b.lhs >= num_lhs || b.rhs < 0 || b.rhs >= num_rhs) {
        return absl::FailedPreconditionError(absl::StrCat(path, ": has bucket (", b.lhs, ", ",
                                                          b.rhs, "), but the configuration has ",
                                                          num_lhs, " x ", num_rhs, " partitions"));
      }
      at(b) = bucket.edges;
    }
    SetDigest(manifest->import_id, &edges);
    return edges;
  }
  if (!absl::IsNotFound(manifest.status())) return manifest.status();
  for (int lhs = 0; lhs < num_lhs; ++lhs) {
    for (int rhs = 0; rhs < num_rhs; ++rhs) {
      WEFT_ASSIGN_OR_RETURN(at({lhs, rhs}), CountEdges(path, {lhs, rhs}));
    }
  }
  SetDigest(0, &edges);
  return edges;
}

absl::Status CountBucketFeatures(const std::string& path, int num_rhs, LocalData::EdgePath* edges) {
  edges->bucket_features.assign(edges->bucket_edges.size(), 0);
  for (size_t i = 0; i < edges->bucket_edges.size(); ++i) {
    if (edges->bucket_edges[i] == 0) continue;
    const auto at = static_cast<PartitionId>(i);
    WEFT_ASSIGN_OR_RETURN(edges->bucket_features[i],
                          CountFeatures(path, {at / num_rhs, at % num_rhs}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LocalData> ReadLocalData(const RunConfig& config) {
  WEFT_RETURN_IF_ERROR(
      CheckDataset(DatasetSchemaOf(config), config.entity_path, config.edge_paths));
  LocalData data;
  for (const EntityConfig& type : config.entities) {
    std::vector<int64_t>& counts = data.entity_counts.emplace_back();
    for (int i = 0; i < type.num_partitions; ++i) {
      WEFT_ASSIGN_OR_RETURN(const int64_t count, ReadEntityCount(config.entity_path, type.name, i));
      counts.push_back(count);
    }
  }
  if (config.dynamic_relations) {
    WEFT_ASSIGN_OR_RETURN(data.num_dynamic_relations, ReadRelationCount(config.entity_path));
  }
  WEFT_ASSIGN_OR_RETURN(data.entities_digest, EntitiesDigest(config.entity_path));
  for (const std::string& path : config.edge_paths) {
    const int num_rhs = config.NumPartitions(Side::kRhs);
    WEFT_ASSIGN_OR_RETURN(LocalData::EdgePath edges,
                          ReadEdgePath(path, config.NumPartitions(Side::kLhs), num_rhs));
    if (std::ranges::any_of(config.entities, &EntityConfig::featurized)) {
      WEFT_RETURN_IF_ERROR(CountBucketFeatures(path, num_rhs, &edges));
    }
    data.edge_paths.push_back(std::move(edges));
  }
  return data;
}

}  // namespace weft
