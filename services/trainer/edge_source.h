// EdgeSource is where a trainer's edges come from: the folders of the edge paths, or a cluster's
// partition servers.
//
// Thread-safety: may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/edge_bucket_file.h"
#include "graph/edge_list.h"
#include "services/common/types.h"

namespace weft {

class EdgeSource {
 public:
  // Takes the next edges, of which the first is in row `first` of its bucket.
  using Take = absl::FunctionRef<absl::Status(int64_t first, const EdgeList& edges)>;

  virtual ~EdgeSource() = default;

  // The number of edges in a bucket.
  virtual absl::StatusOr<int64_t> Count(int edge_path, Bucket bucket) = 0;
  // Gives edges [begin, end) of a bucket, in order, in blocks that are small beside a bucket. Every
  // id is checked against `limits`.
  // Errors: InvalidArgument (an id out of range, a bad weight; names it), DataLoss; those of
  // `take`.
  virtual absl::Status Read(int edge_path, Bucket bucket, int64_t begin, int64_t end,
                            const EdgeLimits& limits, Take take) = 0;
};

class FolderEdgeSource : public EdgeSource {
 public:
  explicit FolderEdgeSource(std::vector<std::string> edge_paths)
      : edge_paths_(std::move(edge_paths)) {}

  absl::StatusOr<int64_t> Count(int edge_path, Bucket bucket) override;
  absl::Status Read(int edge_path, Bucket bucket, int64_t begin, int64_t end,
                    const EdgeLimits& limits, Take take) override;

 private:
  const std::vector<std::string> edge_paths_;
};

}  // namespace weft
