#include "graph/edge_bucket_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/hdf5_file.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kBlock = 65536;  // edges converted at a time

absl::StatusOr<int64_t> Length(const Hdf5Reader& file, const std::string& dataset) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, file.Shape(dataset));
  if (shape.size() == 1) return shape[0];
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": data set ", dataset, " has ",
                                                 shape.size(), " dimensions, needs one"));
}

// Checks that the columns of a bucket belong together and counts its edges.
absl::StatusOr<int64_t> CheckColumns(const Hdf5Reader& file) {
  WEFT_ASSIGN_OR_RETURN(const int64_t version, file.IntAttribute("/", "format_version"));
  if (version != kFormatVersion) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": format_version is ", version,
                                                   "; only ", kFormatVersion, " is known"));
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t num_edges, Length(file, "rel"));
  for (const std::string column : {"lhs", "rhs", "weight"}) {
    if (column == "weight" && !file.HasDataset(column)) continue;
    WEFT_ASSIGN_OR_RETURN(const int64_t length, Length(file, column));
    if (length != num_edges) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": data set ", column, " has ",
                                                     length, " edges, but rel has ", num_edges));
    }
  }
  for (const std::string features : {"lhsd_offsets", "rhsd_offsets"}) {
    if (file.HasDataset(features)) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(),
                                                     ": has featurized entities (data set ",
                                                     features, "), which cannot be read"));
    }
  }
  return num_edges;
}

struct OpenBucketFile {
  Hdf5Reader file;
  int64_t num_edges = 0;
};

// NotFound means that there is no file; what is missing in a file is DataLoss.
absl::StatusOr<OpenBucketFile> OpenBucket(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(Hdf5Reader file, Hdf5Reader::Open(path));
  absl::StatusOr<int64_t> num_edges = CheckColumns(file);
  if (absl::IsNotFound(num_edges.status())) {
    return absl::DataLossError(num_edges.status().message());
  }
  WEFT_RETURN_IF_ERROR(num_edges.status());
  return OpenBucketFile{std::move(file), *num_edges};
}

absl::Status BadId(const std::string& path, absl::string_view column, int64_t row, int64_t id,
                   int64_t limit, absl::string_view of) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", column, "[", row, "] is ", id,
                                                 ", must be 0 to ", limit - 1, " (", of, ")"));
}

// Checks a block of edges that begins at row `first`.
template <typename Id>
absl::Status CheckBlock(const std::string& path, int64_t first, std::span<const Id> lhs,
                        std::span<const Id> rhs, std::span<const Id> rel,
                        const EdgeLimits& limits) {
  const bool by_relation = limits.lhs_counts.size() > 1;
  for (size_t i = 0; i < rel.size(); ++i) {
    const int64_t row = first + static_cast<int64_t>(i);
    if (rel[i] < 0 || rel[i] >= limits.num_relations) {
      return BadId(path, "rel", row, rel[i], limits.num_relations, "the relations that there are");
    }
    const size_t r = by_relation ? static_cast<size_t>(rel[i]) : 0;
    if (lhs[i] < 0 || lhs[i] >= limits.lhs_counts[r]) {
      return BadId(path, "lhs", row, lhs[i], limits.lhs_counts[r],
                   "the entities of its left-hand partition");
    }
    if (rhs[i] < 0 || rhs[i] >= limits.rhs_counts[r]) {
      return BadId(path, "rhs", row, rhs[i], limits.rhs_counts[r],
                   "the entities of its right-hand partition");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWeights(const std::string& path, int64_t first, std::span<const float> weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": weight[",
                                                     first + static_cast<int64_t>(i), "] is ",
                                                     weights[i], ", must be finite and >= 0"));
    }
  }
  return absl::OkStatus();
}

class Hdf5EdgeBucketWriter : public EdgeBucketWriter {
 public:
  Hdf5EdgeBucketWriter(Hdf5Writer file, bool weighted, bool durable)
      : file_(std::move(file)), weighted_(weighted), durable_(durable) {}

  absl::Status Append(const EdgeList& edges) override {
    WEFT_CHECK(edges.rhs.size() == edges.lhs.size() && edges.rel.size() == edges.lhs.size());
    WEFT_CHECK(edges.weight.size() == (weighted_ ? edges.lhs.size() : 0));
    WEFT_RETURN_IF_ERROR(AppendColumn("lhs", edges.lhs));
    WEFT_RETURN_IF_ERROR(AppendColumn("rhs", edges.rhs));
    WEFT_RETURN_IF_ERROR(AppendColumn("rel", edges.rel));
    return weighted_ ? file_.Append("weight", std::span<const float>(edges.weight))
                     : absl::OkStatus();
  }

  absl::Status Finish() override { return file_.Finish(durable_); }

 private:
  absl::Status AppendColumn(const char* name, const std::vector<int32_t>& ids) {
    for (size_t begin = 0; begin < ids.size(); begin += kBlock) {
      const size_t end = std::min(ids.size(), begin + kBlock);
      wide_.assign(ids.begin() + static_cast<ptrdiff_t>(begin),
                   ids.begin() + static_cast<ptrdiff_t>(end));
      WEFT_RETURN_IF_ERROR(file_.Append(name, std::span<const int64_t>(wide_)));
    }
    return absl::OkStatus();
  }

  Hdf5Writer file_;
  const bool weighted_;
  const bool durable_;
  std::vector<int64_t> wide_;
};

}  // namespace

std::string EdgeBucketPath(const std::string& edge_path, Bucket bucket) {
  return absl::StrCat(edge_path, "/edges_", bucket.lhs, "_", bucket.rhs, ".h5");
}

absl::StatusOr<int64_t> CountEdges(const std::string& edge_path, Bucket bucket) {
  const absl::StatusOr<OpenBucketFile> open = OpenBucket(EdgeBucketPath(edge_path, bucket));
  if (absl::IsNotFound(open.status())) return 0;
  WEFT_RETURN_IF_ERROR(open.status());
  return open->num_edges;
}

absl::Status CheckEdges(const std::string& what, int64_t first, const EdgeList& edges,
                        const EdgeLimits& limits) {
  WEFT_RETURN_IF_ERROR(CheckBlock<int32_t>(what, first, edges.lhs, edges.rhs, edges.rel, limits));
  return CheckWeights(what, first, edges.weight);
}

absl::StatusOr<EdgeList> ReadEdges(const std::string& edge_path, Bucket bucket, int64_t begin,
                                   int64_t end, const EdgeLimits& limits) {
  EdgeList edges;
  const std::string path = EdgeBucketPath(edge_path, bucket);
  if (begin == end) return edges;
  WEFT_ASSIGN_OR_RETURN(const OpenBucketFile open, OpenBucket(path));
  const auto& [file, num_edges] = open;
  if (begin < 0 || begin > end || end > num_edges) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", num_edges, " edges; wanted ", begin, " to ", end));
  }
  const auto total = static_cast<size_t>(end - begin);
  edges.lhs.reserve(total);
  edges.rhs.reserve(total);
  edges.rel.reserve(total);
  std::array<std::vector<int64_t>, 3> columns;
  for (int64_t first = begin; first < end; first += kBlock) {
    const auto n = static_cast<size_t>(std::min(kBlock, end - first));
    auto& [lhs, rhs, rel] = columns;
    for (auto& [column, name] : {std::pair(&lhs, "lhs"), {&rhs, "rhs"}, {&rel, "rel"}}) {
      column->resize(n);
      WEFT_RETURN_IF_ERROR(file.Read(name, first, std::span<int64_t>(*column)));
    }
    WEFT_RETURN_IF_ERROR(CheckBlock<int64_t>(path, first, lhs, rhs, rel, limits));
    auto narrow = [](int64_t id) { return static_cast<int32_t>(id); };
    std::ranges::transform(lhs, std::back_inserter(edges.lhs), narrow);
    std::ranges::transform(rhs, std::back_inserter(edges.rhs), narrow);
    std::ranges::transform(rel, std::back_inserter(edges.rel), narrow);
  }
  if (file.HasDataset("weight")) {
    edges.weight.resize(total);
    WEFT_RETURN_IF_ERROR(file.Read("weight", begin, std::span<float>(edges.weight)));
    WEFT_RETURN_IF_ERROR(CheckWeights(path, begin, edges.weight));
  }
  return edges;
}

absl::StatusOr<std::unique_ptr<EdgeBucketWriter>> EdgeBucketWriter::Create(const std::string& path,
                                                                           bool weighted,
                                                                           bool durable) {
  WEFT_ASSIGN_OR_RETURN(Hdf5Writer file, Hdf5Writer::Create(path));
  WEFT_RETURN_IF_ERROR(file.IntAttribute("/", "format_version", kFormatVersion));
  for (const char* column : {"lhs", "rhs", "rel"}) {
    WEFT_RETURN_IF_ERROR(file.CreateAppendable(column, /*is_float=*/false));
  }
  if (weighted) WEFT_RETURN_IF_ERROR(file.CreateAppendable("weight", /*is_float=*/true));
  return std::make_unique<Hdf5EdgeBucketWriter>(std::move(file), weighted, durable);
}

}  // namespace weft
