// The edges of one bucket on disk: PBG's `edges_{lhs}_{rhs}.h5` with data sets `lhs`, `rhs`, `rel`
// (int64) and, for weighted graphs, `weight` (float32; int64 is read too).
//
// With featurized entity types on the left, also `lhsd_offsets` and `lhsd_data`: the features of
// edge i's entity are lhsd_data[lhsd_offsets[i] .. lhsd_offsets[i + 1]), and its `lhs` is -1. An
// entity that has an offset has no features. On the right, `rhsd_*`.
//
// A missing file is an empty bucket. Errors: InvalidArgument for contents that do not fit the
// configuration (naming file, data set and row), DataLoss for a damaged file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/edge_list.h"
#include "services/common/types.h"

namespace weft {

// DIR/edges_{lhs}_{rhs}.h5
std::string EdgeBucketPath(const std::string& edge_path, Bucket bucket);

// The number of edges in a bucket; 0 when there is no file.
absl::StatusOr<int64_t> CountEdges(const std::string& edge_path, Bucket bucket);
// The number of features that the entities of its edges have, both sides together.
absl::StatusOr<int64_t> CountFeatures(const std::string& edge_path, Bucket bucket);

// What ids are allowed in a bucket: every edge is checked at load, so that no bad id reaches a
// kernel. For relation r (row 0 for all of them in dynamic mode): entities of each side in this
// bucket; of a featurized entity type, its features.
struct EdgeLimits {
  int64_t num_relations = 0;
  std::span<const int64_t> lhs_counts;  // by relation; one entry when dynamic
  std::span<const int64_t> rhs_counts;
  // Whether the entities of that side are featurized, by relation. Empty: none.
  std::span<const uint8_t> lhs_featurized = {};
  std::span<const uint8_t> rhs_featurized = {};

  std::span<const int64_t> counts(Side side) const {
    return side == Side::kLhs ? lhs_counts : rhs_counts;
  }
  std::span<const uint8_t> featurized(Side side) const {
    return side == Side::kLhs ? lhs_featurized : rhs_featurized;
  }
};

// Whether a block of edges keeps to the limits, and its weights are finite and >= 0. `what`: its
// origin, `first`: its first row there; for messages. Errors: InvalidArgument.
// Sides with featurized entities must have bags.
absl::Status CheckEdges(const std::string& what, int64_t first, const EdgeList& edges,
                        const EdgeLimits& limits);

// Edges [begin, end) of a bucket, checked against `limits`. Weights must be finite and >= 0. A side
// has bags if some relation's entities there are featurized.
absl::StatusOr<EdgeList> ReadEdges(const std::string& edge_path, Bucket bucket, int64_t begin,
                                   int64_t end, const EdgeLimits& limits);

// Writes one bucket file by appending. Not thread-safe (one writer a file; files in parallel are
// fine). The file is complete and durable after Finish; a writer destroyed before leaves no file.
// Holds one open file and at most 64 Ki edges (28 bytes each) in memory.
class EdgeBucketWriter {
 public:
  // `weighted`: whether the file has weights; then every Append must bring them.
  // `durable` false: the file is complete after Finish, but the one who publishes it syncs it.
  static absl::StatusOr<std::unique_ptr<EdgeBucketWriter>> Create(const std::string& path,
                                                                  bool weighted,
                                                                  bool durable = true);
  virtual ~EdgeBucketWriter() = default;
  // Either all Appends have features on a side, or none.
  virtual absl::Status Append(const EdgeList& edges) = 0;
  virtual absl::Status Finish() = 0;
};

}  // namespace weft
