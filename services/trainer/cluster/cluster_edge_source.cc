#include "services/trainer/cluster/cluster_edge_source.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/edge_codec.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

// Rows [begin, end) of a list, which is left without them.
EdgeList Slice(EdgeList edges, int64_t begin, int64_t end) {
  if (begin == 0 && end == edges.size()) return edges;
  const auto cut = [&](auto* column) {
    if (column->empty()) return;
    column->resize(static_cast<size_t>(end));
    column->erase(column->begin(), column->begin() + begin);
  };
  cut(&edges.lhs);
  cut(&edges.rhs);
  cut(&edges.rel);
  cut(&edges.weight);
  for (FeatureBags& bags : edges.features) {
    if (bags.empty()) continue;
    FeatureBags kept;
    for (int64_t i = begin; i < end; ++i) kept.Append(bags[i]);
    bags = std::move(kept);
  }
  return edges;
}

}  // namespace

absl::StatusOr<int64_t> ClusterEdgeSource::Count(int edge_path, Bucket bucket) {
  WEFT_ASSIGN_OR_RETURN(const VersionInfo where, places_->Find(VersionOf(edge_path, bucket)));
  if (where.shards.empty()) return 0;
  return where.shards.back().first_row + where.shards.back().num_rows;
}

absl::Status ClusterEdgeSource::Read(int edge_path, Bucket bucket, int64_t begin, int64_t end,
                                     const EdgeLimits& limits, Take take) {
  const PartitionVersion version = VersionOf(edge_path, bucket);
  const std::string what = absl::StrCat("edges of bucket (", bucket.lhs, ", ", bucket.rhs, ")");
  WEFT_ASSIGN_OR_RETURN(const VersionInfo known, places_->Find(version));
  const bool featurized = !limits.lhs_featurized.empty() || !limits.rhs_featurized.empty();
  for (size_t i = 0; i < known.shards.size(); ++i) {
    const int64_t first = known.shards[i].first_row;
    const int64_t rows = known.shards[i].num_rows;
    const int64_t from = std::max(begin, first);
    const int64_t to = std::min(end, first + rows);
    if (from >= to) continue;
    const int64_t size = known.shards[i].size_bytes;
    // Features are of any number.
    const bool fits = featurized
                          ? size >= rows * EdgeBytes(false)
                          : size == rows * EdgeBytes(false) || size == rows * EdgeBytes(true);
    if (!fits) {
      return absl::DataLossError(absl::StrCat(what, ": ", size, " bytes are not ", rows, " edges"));
    }
    std::string bytes(static_cast<size_t>(size), '\0');
    const auto read = [&]() -> absl::StatusOr<int64_t> {
      // Places change while one waits.
      WEFT_ASSIGN_OR_RETURN(const VersionInfo where, places_->Find(version));
      const auto session = [this] { return places_->CheckSession(); };
      WEFT_RETURN_IF_ERROR(
          transfer_->ReadShard(version, where.shards[i], {bytes.data(), bytes.size()}, session));
      return size;
    };
    WEFT_RETURN_IF_ERROR(reports_->Read(version, read));
    WEFT_ASSIGN_OR_RETURN(EdgeList edges, DecodeEdges(bytes, rows, featurized));
    WEFT_RETURN_IF_ERROR(CheckEdges(what, first, edges, limits));
    WEFT_RETURN_IF_ERROR(take(from, Slice(std::move(edges), from - first, to - first)));
  }
  return absl::OkStatus();
}

}  // namespace weft
