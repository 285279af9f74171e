// The edges that `weft eval` reads: those that it ranks, those that are known to be true, and those
// of training.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/trainer/bag_index.h"
#include "services/trainer/edge_filter.h"
#include "services/trainer/entity_index.h"
#include "services/trainer/model/model_spec.h"
#include "services/trainer/ranking_queries.h"

namespace weft::cli {

// Which entities stand in an edge of training. Those of featurized types count as seen: they are
// made of features.
class SeenEntities {
 public:
  explicit SeenEntities(const EntityIndex& entities);

  void Add(const ModelSpec& spec, std::span<const IndexedEdge> edges);
  bool Contains(const ModelSpec& spec, const IndexedEdge& edge, Side side) const;

 private:
  std::vector<std::vector<bool>> seen_;  // [type][entity]
};

// All edges of `paths`. Entities of featurized types get numbers of `bags`.
// Errors: FailedPrecondition when there are none, else as ForEachIndexedEdge.
absl::StatusOr<std::vector<IndexedEdge>> ReadEvaluatedEdges(const std::vector<std::string>& paths,
                                                            const ModelSpec& spec,
                                                            const EntityIndex& entities,
                                                            BagIndex* bags);

// Reads the edges of `filters` into `filter` and those of `training` into `seen`, a folder that is
// in both once, and returns how many went into `filter`, which is not finished yet. Entities of
// featurized types that are not in `bags` answer nothing.
absl::StatusOr<int64_t> ReadKnownEdges(const std::vector<std::string>& filters,
                                       const std::vector<std::string>& training,
                                       const ModelSpec& spec, const EntityIndex& entities,
                                       BagIndex* bags, EdgeFilter* filter, SeenEntities* seen);

}  // namespace weft::cli
