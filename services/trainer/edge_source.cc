#include "services/trainer/edge_source.h"

#include <algorithm>

#include "services/common/status_macros.h"

namespace weft {
namespace {

// Edges read at a time, so that they are in memory once only.
constexpr int64_t kBlock = int64_t{1} << 20;

}  // namespace

absl::StatusOr<int64_t> FolderEdgeSource::Count(int edge_path, Bucket bucket) {
  return CountEdges(edge_paths_[static_cast<size_t>(edge_path)], bucket);
}

absl::Status FolderEdgeSource::Read(int edge_path, Bucket bucket, int64_t begin, int64_t end,
                                    const EdgeLimits& limits, Take take) {
  const std::string& path = edge_paths_[static_cast<size_t>(edge_path)];
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t last = std::min(end, first + kBlock);
    WEFT_ASSIGN_OR_RETURN(const EdgeList block, ReadEdges(path, bucket, first, last, limits));
    WEFT_RETURN_IF_ERROR(take(first, block));
  }
  return absl::OkStatus();
}

}  // namespace weft
