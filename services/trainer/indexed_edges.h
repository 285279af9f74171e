// Reads the edges of whole edge paths, with entities numbered through their types' partitions.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "services/trainer/entity_index.h"
#include "services/trainer/model/model_spec.h"
#include "services/trainer/ranking_queries.h"

namespace weft {

// Calls `each` with all edges of `edge_path`, a slice at a time, bucket after bucket (right-hand
// partitions inside left-hand ones). Memory: one slice (1 Mi edges).
// Errors: NotFound when there is no such folder, else as ReadEdges (every edge is checked against
// the numbers of relations and entities).
absl::Status ForEachIndexedEdge(const std::string& edge_path, const ModelSpec& spec,
                                const EntityIndex& entities,
                                const std::function<void(std::span<const IndexedEdge>)>& each);

}  // namespace weft
