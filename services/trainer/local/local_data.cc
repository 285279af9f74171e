#include "services/trainer/local/local_data.h"

#include <xxhash.h>

#include <algorithm>

#include "graph/edge_bucket_file.h"
#include "graph/entity_files.h"
#include "services/common/status_macros.h"

namespace weft {

int LocalData::NumEdgeChunks(int64_t max_edges_per_chunk) const {
  int64_t largest = 0;
  for (const EdgePath& path : edge_paths) {
    for (const int64_t edges : path.bucket_edges) largest = std::max(largest, edges);
  }
  return static_cast<int>(
      std::max<int64_t>(1, (largest + max_edges_per_chunk - 1) / max_edges_per_chunk));
}

absl::StatusOr<LocalData> ReadLocalData(const RunConfig& config) {
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
  const int num_lhs = config.NumPartitions(Side::kLhs);
  const int num_rhs = config.NumPartitions(Side::kRhs);
  for (const std::string& path : config.edge_paths) {
    LocalData::EdgePath& edges = data.edge_paths.emplace_back();
    for (int lhs = 0; lhs < num_lhs; ++lhs) {
      for (int rhs = 0; rhs < num_rhs; ++rhs) {
        WEFT_ASSIGN_OR_RETURN(const int64_t count, CountEdges(path, {lhs, rhs}));
        edges.bucket_edges.push_back(count);
      }
    }
    edges.digest = XXH3_64bits(edges.bucket_edges.data(),
                               edges.bucket_edges.size() * sizeof(edges.bucket_edges[0]));
  }
  return data;
}

}  // namespace weft
