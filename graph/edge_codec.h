// Edges as bytes: lhs, rhs and rel as little-endian int32 and, in weighted graphs, the weight as
// float32, edge after edge. What a cluster's partition servers hold of a bucket.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/edge_list.h"

namespace weft {

// Of one edge.
constexpr int64_t EdgeBytes(bool weighted) { return weighted ? 16 : 12; }

std::string EncodeEdges(const EdgeList& edges);

// `bytes`: of `num_edges` edges, all with weights or none. Ids are not checked (CheckEdges).
// Errors: DataLoss when they are of another length.
absl::StatusOr<EdgeList> DecodeEdges(absl::string_view bytes, int64_t num_edges);

}  // namespace weft
