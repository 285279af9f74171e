// Edges as bytes: lhs, rhs and rel as little-endian int32 and, in weighted graphs, the weight as
// float32, edge after edge. What a cluster's partition servers hold of a bucket.
//
// Of a graph with featurized entity types, more follows: for each side that has features, the
// number of features of each edge's entity and then all of them (int32); at the end an int32 that
// says what there is (1: weights, 2: features on the left, 4: on the right).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/edge_list.h"

namespace weft {

// Of one edge without features.
constexpr int64_t EdgeBytes(bool weighted) { return weighted ? 16 : 12; }

std::string EncodeEdges(const EdgeList& edges);

// `bytes`: of `num_edges` edges, all with weights or none. `featurized`: whether the graph has
// featurized entity types. Ids are not checked (CheckEdges).
// Errors: DataLoss when they are of another length.
absl::StatusOr<EdgeList> DecodeEdges(absl::string_view bytes, int64_t num_edges,
                                     bool featurized = false);

}  // namespace weft
