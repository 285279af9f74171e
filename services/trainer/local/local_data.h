// What a run needs to know of its data on this machine before it trains: how many entities and
// edges there are, where.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/run_config.h"

namespace weft {

struct LocalData {
  std::vector<std::vector<int64_t>> entity_counts;  // [entity type][partition]
  int64_t num_dynamic_relations = 0;                // 0: static relations
  struct EdgePath {
    std::vector<int64_t> bucket_edges;  // [lhs partition, rhs partition]
    uint64_t digest = 0;                // of `bucket_edges` and of the import they came from
    // Of the entities of a bucket's edges; empty when no entity type is featurized.
    std::vector<int64_t> bucket_features;
  };
  std::vector<EdgePath> edge_paths;
  // Of the entities' names, in order; 0 when the data came without a manifest.
  uint64_t entities_digest = 0;

  int64_t LargestBucket() const;          // edges
  int64_t LargestBucketFeatures() const;  // of any bucket
  // num_edge_chunks that keeps every chunk of every bucket within max_edges_per_chunk.
  int NumEdgeChunks(int64_t max_edges_per_chunk) const;
};

// Whether some relation uses the entity type. What none uses is not trained, and no version of a
// checkpoint holds it.
bool IsTrained(const RunConfig& config, EntityTypeId type);

// Edges are counted from the manifests of an import where there are some, else from the files.
// Errors: FailedPrecondition when the data was imported for another configuration, or in parts;
// NotFound for a missing file, DataLoss for a damaged one; names it.
absl::StatusOr<LocalData> ReadLocalData(const RunConfig& config);

}  // namespace weft
