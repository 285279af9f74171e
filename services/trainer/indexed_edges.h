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

// The number of an entity of a featurized type, by its features of a partition (bag_index.h).
using NumberOfBag =
    std::function<int64_t(PartitionKey features, std::span<const EntityOffset> bag)>;

// Calls `each` with all edges of `edge_path`, a slice at a time, bucket after bucket (right-hand
// partitions inside left-hand ones). Memory: one slice (1 Mi edges).
// Entities of featurized types are numbered by `number_of_bag`, which may be empty when there are
// none.
// Errors: NotFound when there is no such folder, else as ReadEdges (every edge is checked against
// the numbers of relations and entities).
absl::Status ForEachIndexedEdge(const std::string& edge_path, const ModelSpec& spec,
                                const EntityIndex& entities,
                                const std::function<void(std::span<const IndexedEdge>)>& each,
                                const NumberOfBag& number_of_bag = {});

}  // namespace weft
