// The edges that `weft eval` reads: those that it ranks, those that are known to be true, and those
// of training.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/trainer/edge_filter.h"
#include "services/trainer/entity_index.h"
#include "services/trainer/model/model_spec.h"
#include "services/trainer/ranking_queries.h"

namespace weft::cli {

// Which entities stand in an edge of training.
class SeenEntities {
 public:
  explicit SeenEntities(const EntityIndex& entities);

  void Add(const ModelSpec& spec, std::span<const IndexedEdge> edges);
  bool Contains(EntityTypeId type, int64_t entity) const { return seen_[type][entity]; }

 private:
  std::vector<std::vector<bool>> seen_;  // [type][entity]
};

// All edges of `paths`.
// Errors: FailedPrecondition when there are none, else as ForEachIndexedEdge.
absl::StatusOr<std::vector<IndexedEdge>> ReadEvaluatedEdges(const std::vector<std::string>& paths,
                                                            const ModelSpec& spec,
                                                            const EntityIndex& entities);

// Reads the edges of `filters` into `filter` and those of `training` into `seen`, a folder that is
// in both once, and returns how many went into `filter`, which is not finished yet.
absl::StatusOr<int64_t> ReadKnownEdges(const std::vector<std::string>& filters,
                                       const std::vector<std::string>& training,
                                       const ModelSpec& spec, const EntityIndex& entities,
                                       EdgeFilter* filter, SeenEntities* seen);

}  // namespace weft::cli
