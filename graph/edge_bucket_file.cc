#include "graph/edge_bucket_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
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

// The column of a side's entities, and the data sets of their features.
absl::string_view SideName(Side side) { return side == Side::kLhs ? "lhs" : "rhs"; }
std::string OffsetsName(Side side) { return absl::StrCat(SideName(side), "d_offsets"); }
std::string FeaturesName(Side side) { return absl::StrCat(SideName(side), "d_data"); }

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
  for (const Side side : kSides) {
    const std::string name = OffsetsName(side);
    if (!file.HasDataset(name)) continue;
    WEFT_ASSIGN_OR_RETURN(const int64_t length, Length(file, name));
    if (length != num_edges + 1) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": data set ", name, " has ",
                                                     length, " entries, must have ", num_edges + 1,
                                                     ": one more than there are edges"));
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

// Checks the entities of one side, in a block of edges that begins at row `first`.
template <typename Id>
absl::Status CheckSide(const std::string& path, int64_t first, Side side, std::span<const Id> ids,
                       std::span<const Id> rel, const EdgeLimits& limits) {
  const std::span<const int64_t> counts = limits.counts(side);
  const std::span<const uint8_t> featurized = limits.featurized(side);
  const bool by_relation = counts.size() > 1;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t row = first + static_cast<int64_t>(i);
    const size_t r = by_relation ? static_cast<size_t>(rel[i]) : 0;
    if (!featurized.empty() && featurized[r] != 0) {
      if (ids[i] == EdgeList::kFeaturized) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", SideName(side), "[", row, "] is ", ids[i],
                       ", but its entity type is featurized: it must be -1, with the features in ",
                       FeaturesName(side)));
    }
    if (ids[i] < 0 || ids[i] >= counts[r]) {
      return BadId(
          path, SideName(side), row, ids[i], counts[r],
          absl::StrCat("the entities of its ", side == Side::kLhs ? "left" : "right",
                       "-hand partition",
                       ids[i] == EdgeList::kFeaturized
                           ? "; -1 is for entity types that are featurized in the configuration"
                           : ""));
    }
  }
  return absl::OkStatus();
}

// Checks a block of edges that begins at row `first`.
template <typename Id>
absl::Status CheckBlock(const std::string& path, int64_t first, std::span<const Id> lhs,
                        std::span<const Id> rhs, std::span<const Id> rel,
                        const EdgeLimits& limits) {
  for (size_t i = 0; i < rel.size(); ++i) {
    if (rel[i] < 0 || rel[i] >= limits.num_relations) {
      return BadId(path, "rel", first + static_cast<int64_t>(i), rel[i], limits.num_relations,
                   "the relations that there are");
    }
  }
  WEFT_RETURN_IF_ERROR(CheckSide(path, first, Side::kLhs, lhs, rel, limits));
  return CheckSide(path, first, Side::kRhs, rhs, rel, limits);
}

// Checks the bags of one side of `edges`, whose other columns are checked.
absl::Status CheckBags(const std::string& path, int64_t first, Side side, const EdgeList& edges,
                       const EdgeLimits& limits) {
  const std::span<const int64_t> counts = limits.counts(side);
  const std::span<const uint8_t> featurized = limits.featurized(side);
  const FeatureBags& bags = edges.features[static_cast<int>(side)];
  if (featurized.empty()) {
    if (bags.features.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(path, ": has features (", FeaturesName(side),
                                                   "), but no entity type on its ", SideName(side),
                                                   " is featurized in the configuration"));
  }
  if (bags.size() != edges.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has ", bags.size(), " bags of ",
                                                   SideName(side), " features for ", edges.size(),
                                                   " edges"));
  }
  for (int64_t i = 0; i < bags.size(); ++i) {
    const size_t r = counts.size() > 1 ? static_cast<size_t>(edges.rel[static_cast<size_t>(i)]) : 0;
    const std::span<const EntityOffset> bag = bags[i];
    if (featurized[r] == 0 && !bag.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", SideName(side), " of edge ", first + i, " has ", bag.size(),
                       " features, but its entity type is not featurized in the configuration"));
    }
    for (const EntityOffset feature : bag) {
      if (feature >= 0 && feature < counts[r]) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", FeaturesName(side), " has feature ", feature, " for edge ",
                       first + i, ", must be 0 to ", counts[r] - 1, " (the features of its ",
                       side == Side::kLhs ? "left" : "right", "-hand partition)"));
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
    for (const Side side : kSides) {
      WEFT_RETURN_IF_ERROR(AppendBags(side, edges.features[static_cast<int>(side)]));
    }
    num_edges_ += edges.size();
    return weighted_ ? file_.Append("weight", std::span<const float>(edges.weight))
                     : absl::OkStatus();
  }

  absl::Status Finish() override { return file_.Finish(durable_); }

 private:
  absl::Status AppendColumn(const std::string& name, const std::vector<int32_t>& ids) {
    for (size_t begin = 0; begin < ids.size(); begin += kBlock) {
      const size_t end = std::min(ids.size(), begin + kBlock);
      wide_.assign(ids.begin() + static_cast<ptrdiff_t>(begin),
                   ids.begin() + static_cast<ptrdiff_t>(end));
      WEFT_RETURN_IF_ERROR(file_.Append(name, std::span<const int64_t>(wide_)));
    }
    return absl::OkStatus();
  }

  absl::Status AppendBags(Side side, const FeatureBags& bags) {
    std::optional<int64_t>& written = num_features_[static_cast<int>(side)];
    if (bags.empty() && !written.has_value()) return absl::OkStatus();
    if (!written.has_value()) {
      WEFT_CHECK(num_edges_ == 0);
      written = 0;
      WEFT_RETURN_IF_ERROR(file_.CreateAppendable(OffsetsName(side), /*is_float=*/false));
      WEFT_RETURN_IF_ERROR(file_.CreateAppendable(FeaturesName(side), /*is_float=*/false));
      wide_.assign(1, 0);
      WEFT_RETURN_IF_ERROR(file_.Append(OffsetsName(side), std::span<const int64_t>(wide_)));
    }
    for (int64_t begin = 0; begin < bags.size(); begin += kBlock) {
      const int64_t end = std::min(bags.size(), begin + kBlock);
      wide_.clear();
      for (int64_t i = begin; i < end; ++i) {
        wide_.push_back(*written + bags.offsets[static_cast<size_t>(i) + 1]);
      }
      WEFT_RETURN_IF_ERROR(file_.Append(OffsetsName(side), std::span<const int64_t>(wide_)));
    }
    *written += static_cast<int64_t>(bags.features.size());
    return AppendColumn(FeaturesName(side), bags.features);
  }

  Hdf5Writer file_;
  const bool weighted_;
  const bool durable_;
  int64_t num_edges_ = 0;
  std::optional<int64_t> num_features_[2];  // written so far; none: a side without bags
  std::vector<int64_t> wide_;
};

// Of edges [begin, end); one empty bag an edge where the file has no features, as PBG leaves them
// out. The lists are checked, the features are not.
absl::StatusOr<FeatureBags> ReadBags(const Hdf5Reader& file, Side side, int64_t begin, int64_t end,
                                     int64_t num_edges) {
  FeatureBags bags;
  const std::string name = OffsetsName(side);
  bags.offsets.assign(static_cast<size_t>(end - begin) + 1, 0);
  if (!file.HasDataset(name)) return bags;
  WEFT_ASSIGN_OR_RETURN(const int64_t num_features, Length(file, FeaturesName(side)));
  WEFT_RETURN_IF_ERROR(file.Read(name, begin, std::span<int64_t>(bags.offsets)));
  const auto bad = [&](int64_t row, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", name, "[", row, "] is ",
                                                   bags.offsets[static_cast<size_t>(row - begin)],
                                                   why));
  };
  if (begin == 0 && bags.offsets.front() != 0) return bad(0, ", must be 0");
  for (int64_t row = begin; row <= end; ++row) {
    const int64_t offset = bags.offsets[static_cast<size_t>(row - begin)];
    if (offset < (row == begin ? 0 : bags.offsets[static_cast<size_t>(row - begin) - 1])) {
      return bad(row, ", less than the one before");
    }
    if (offset > num_features) {
      return bad(row, absl::StrCat(", but ", FeaturesName(side), " has ", num_features));
    }
  }
  if (end == num_edges && bags.offsets.back() != num_features) {
    return bad(end, absl::StrCat(", must be the size of ", FeaturesName(side), ", ", num_features));
  }
  const int64_t first = bags.offsets.front();
  bags.features.reserve(static_cast<size_t>(bags.offsets.back() - first));
  std::vector<int64_t> wide;
  for (int64_t at = first; at < bags.offsets.back(); at += kBlock) {
    wide.resize(static_cast<size_t>(std::min(kBlock, bags.offsets.back() - at)));
    WEFT_RETURN_IF_ERROR(file.Read(FeaturesName(side), at, std::span<int64_t>(wide)));
    for (const int64_t feature : wide) {
      if (feature < 0 || feature > std::numeric_limits<EntityOffset>::max()) {
        return absl::InvalidArgumentError(
            absl::StrCat(file.path(), ": ", FeaturesName(side), "[",
                         first + static_cast<int64_t>(bags.features.size()), "] is ", feature,
                         ", which is no feature"));
      }
      bags.features.push_back(static_cast<EntityOffset>(feature));
    }
  }
  for (int64_t& offset : bags.offsets) offset -= first;
  return bags;
}

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

absl::StatusOr<int64_t> CountFeatures(const std::string& edge_path, Bucket bucket) {
  const absl::StatusOr<OpenBucketFile> open = OpenBucket(EdgeBucketPath(edge_path, bucket));
  if (absl::IsNotFound(open.status())) return 0;
  WEFT_RETURN_IF_ERROR(open.status());
  int64_t features = 0;
  for (const Side side : kSides) {
    if (!open->file.HasDataset(FeaturesName(side))) continue;
    WEFT_ASSIGN_OR_RETURN(const int64_t of_side, Length(open->file, FeaturesName(side)));
    features += of_side;
  }
  return features;
}

absl::Status CheckEdges(const std::string& what, int64_t first, const EdgeList& edges,
                        const EdgeLimits& limits) {
  WEFT_RETURN_IF_ERROR(CheckBlock<int32_t>(what, first, edges.lhs, edges.rhs, edges.rel, limits));
  for (const Side side : kSides) {
    WEFT_RETURN_IF_ERROR(CheckBags(what, first, side, edges, limits));
  }
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
  for (const Side side : kSides) {
    if (limits.featurized(side).empty() && !file.HasDataset(OffsetsName(side))) continue;
    FeatureBags& bags = edges.features[static_cast<int>(side)];
    WEFT_ASSIGN_OR_RETURN(bags, ReadBags(file, side, begin, end, num_edges));
    WEFT_RETURN_IF_ERROR(CheckBags(path, begin, side, edges, limits));
    if (limits.featurized(side).empty()) bags.Clear();
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
