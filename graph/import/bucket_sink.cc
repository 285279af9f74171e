#include "graph/import/bucket_sink.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "graph/edge_bucket_file.h"
#include "graph/edge_list.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr size_t kAppendEdges = size_t{1} << 16;
// What a hash set takes for an edge, at its emptiest.
constexpr int64_t kSetBytesPerEdge = 32;

// One bucket file that is being written.
class BucketFile {
 public:
  BucketFile(const BucketSink::Options& options, Bucket bucket)
      : path_(EdgeBucketPath(options.folder, bucket)),
        weighted_(options.weighted),
        bags_(options.bags),
        schema_(options.schema) {}

  absl::Status Append(const EdgeRecord& edge) {
    edges_.lhs.push_back(static_cast<EntityOffset>(edge.lhs));
    edges_.rhs.push_back(static_cast<EntityOffset>(edge.rhs));
    if (bags_ != nullptr) AppendFeatures(edge);
    edges_.rel.push_back(static_cast<RelationTypeId>(edge.rel));
    if (weighted_) edges_.weight.push_back(edge.weight);
    return edges_.lhs.size() < kAppendEdges ? absl::OkStatus() : Flush();
  }

  absl::Status Finish() {
    WEFT_RETURN_IF_ERROR(Flush());
    return writer_->Finish();
  }

  int64_t size() const { return written_ + edges_.size(); }

 private:
  absl::Status Flush() {
    if (writer_ == nullptr) {
      WEFT_ASSIGN_OR_RETURN(writer_, EdgeBucketWriter::Create(path_, weighted_, /*durable=*/false));
    }
    WEFT_RETURN_IF_ERROR(writer_->Append(edges_));
    written_ += edges_.size();
    edges_.lhs.clear();
    edges_.rhs.clear();
    edges_.rel.clear();
    edges_.weight.clear();
    for (FeatureBags& features : edges_.features) features.Clear();
    return absl::OkStatus();
  }

  // On a side where some relation's entities are featurized, every edge has a bag.
  void AppendFeatures(const EdgeRecord& edge) {
    const auto type = [&](size_t relation, Side side) {
      return static_cast<size_t>(schema_->relations[relation].side(side));
    };
    for (const Side side : kSides) {
      FeatureBags& features = edges_.features[static_cast<int>(side)];
      const size_t of_edge = type(schema_->dynamic_relations ? 0 : edge.rel, side);
      if (schema_->entities[of_edge].featurized) {
        EntityOffset& id = (side == Side::kLhs ? edges_.lhs : edges_.rhs).back();
        features.Append((*bags_)[of_edge][id]);
        id = EdgeList::kFeaturized;
        continue;
      }
      for (size_t r = 0; r < schema_->relations.size(); ++r) {
        if (!schema_->entities[type(r, side)].featurized) continue;
        features.Append({});
        break;
      }
    }
  }

  const std::string path_;
  const bool weighted_;
  const std::vector<FeatureBags>* const bags_;
  const DatasetSchema* const schema_;
  EdgeList edges_;
  int64_t written_ = 0;
  std::unique_ptr<EdgeBucketWriter> writer_;
};

Bucket BucketAt(const BucketSink::Options& options, uint32_t index) {
  const auto num_rhs = static_cast<uint32_t>(options.num_rhs_partitions);
  return {static_cast<PartitionId>(index / num_rhs), static_cast<PartitionId>(index % num_rhs)};
}

uint32_t NumBuckets(const BucketSink::Options& options) {
  return static_cast<uint32_t>(options.num_lhs_partitions) *
         static_cast<uint32_t>(options.num_rhs_partitions);
}

absl::Status FinishBucket(const BucketSink::Options& options, Bucket bucket, BucketFile* file,
                          BucketSink::Result* result) {
  const int64_t size = file->size();
  if (size == 0 && !options.write_empty) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(file->Finish());
  if (size > 0) result->buckets.push_back({bucket, size});
  result->num_edges += size;
  return absl::OkStatus();
}

// All bucket files at once.
class DirectBucketSink : public BucketSink {
 public:
  explicit DirectBucketSink(const Options& options) : options_(options) {
    for (uint32_t i = 0; i < NumBuckets(options); ++i) {
      files_.emplace_back(options, BucketAt(options, i));
    }
  }

  absl::Status Add(std::span<const EdgeRecord> edges, std::span<const uint32_t> buckets) override {
    for (size_t i = 0; i < edges.size(); ++i) {
      WEFT_RETURN_IF_ERROR(files_[buckets[i]].Append(edges[i]));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Result> Finish() override {
    Result result;
    for (uint32_t i = 0; i < files_.size(); ++i) {
      WEFT_RETURN_IF_ERROR(FinishBucket(options_, BucketAt(options_, i), &files_[i], &result));
    }
    return result;
  }

 private:
  const Options options_;
  std::vector<BucketFile> files_;
};

// Passes the first of equal edges on, in order. Bounded memory: a bucket whose edges do not fit a
// hash set is cut by hash into parts that do; per part one bit an edge says which ones go.
class DuplicateFilter {
 public:
  using Edge = std::tuple<uint32_t, uint32_t, uint32_t>;
  using Emit = std::function<absl::Status(const EdgeRecord&)>;

  DuplicateFilter(const BucketSink::Options& options, const ExternalPartitioner& edges)
      : options_(options), edges_(edges) {}

  absl::Status Run(uint32_t bucket, const Emit& emit, int64_t* num_duplicates) {
    const int64_t bytes = edges_.size(bucket) * kSetBytesPerEdge;
    if (bytes <= options_.memory_bytes) {
      absl::flat_hash_set<Edge> seen;
      return edges_.Read(bucket, [&](std::span<const EdgeRecord> piece) {
        for (const EdgeRecord& edge : piece) {
          if (seen.emplace(edge.lhs, edge.rel, edge.rhs).second) {
            WEFT_RETURN_IF_ERROR(emit(edge));
          } else {
            ++*num_duplicates;
          }
        }
        return absl::OkStatus();
      });
    }
    num_parts_ = static_cast<uint32_t>(bytes / options_.memory_bytes + 1);
    WEFT_RETURN_IF_ERROR(MarkDuplicates(bucket));
    // The edges of a part come in the same order as when they were marked.
    std::vector<size_t> next(num_parts_);
    return edges_.Read(bucket, [&](std::span<const EdgeRecord> piece) {
      for (const EdgeRecord& edge : piece) {
        const uint32_t part = PartOf(edge);
        if (duplicate_[part][next[part]++]) {
          ++*num_duplicates;
        } else {
          WEFT_RETURN_IF_ERROR(emit(edge));
        }
      }
      return absl::OkStatus();
    });
  }

 private:
  uint32_t PartOf(const EdgeRecord& edge) const {
    return static_cast<uint32_t>(absl::HashOf(edge.rhs, edge.rel, edge.lhs) % num_parts_);
  }

  absl::Status MarkDuplicates(uint32_t bucket) {
    ExternalPartitioner parts({num_parts_, options_.memory_bytes, options_.spill_folder});
    std::vector<uint32_t> part_of;
    WEFT_RETURN_IF_ERROR(edges_.Read(bucket, [&](std::span<const EdgeRecord> piece) {
      part_of.clear();
      for (const EdgeRecord& edge : piece) part_of.push_back(PartOf(edge));
      return parts.Add(piece, part_of);
    }));
    WEFT_RETURN_IF_ERROR(parts.Finish());
    duplicate_.assign(num_parts_, {});
    for (uint32_t part = 0; part < num_parts_; ++part) {
      absl::flat_hash_set<Edge> seen;
      WEFT_RETURN_IF_ERROR(parts.Read(part, [&](std::span<const EdgeRecord> piece) {
        for (const EdgeRecord& edge : piece) {
          duplicate_[part].push_back(!seen.emplace(edge.lhs, edge.rel, edge.rhs).second);
        }
        return absl::OkStatus();
      }));
    }
    return absl::OkStatus();
  }

  const BucketSink::Options& options_;
  const ExternalPartitioner& edges_;
  uint32_t num_parts_ = 1;
  std::vector<std::vector<bool>> duplicate_;  // by part, in order
};

// One bucket file after the other, from edges sorted by bucket.
class SortingBucketSink : public BucketSink {
 public:
  explicit SortingBucketSink(const Options& options)
      : options_(options),
        edges_({NumBuckets(options), options.memory_bytes, options.spill_folder}) {}

  absl::Status Add(std::span<const EdgeRecord> edges, std::span<const uint32_t> buckets) override {
    return edges_.Add(edges, buckets);
  }

  absl::StatusOr<Result> Finish() override {
    WEFT_RETURN_IF_ERROR(edges_.Finish());
    Result result;
    for (uint32_t i = 0; i < NumBuckets(options_); ++i) {
      if (edges_.size(i) == 0 && !options_.write_empty) continue;
      const Bucket bucket = BucketAt(options_, i);
      BucketFile file(options_, bucket);
      WEFT_RETURN_IF_ERROR(CopyBucket(i, &file, &result));
      WEFT_RETURN_IF_ERROR(FinishBucket(options_, bucket, &file, &result));
    }
    return result;
  }

 private:
  absl::Status CopyBucket(uint32_t index, BucketFile* file, Result* result) {
    if (options_.drop_duplicates) {
      return DuplicateFilter(options_, edges_)
          .Run(
              index, [&](const EdgeRecord& edge) { return file->Append(edge); },
              &result->num_duplicates);
    }
    return edges_.Read(index, [&](std::span<const EdgeRecord> piece) {
      for (const EdgeRecord& edge : piece) WEFT_RETURN_IF_ERROR(file->Append(edge));
      return absl::OkStatus();
    });
  }

  const Options options_;
  ExternalPartitioner edges_;
};

}  // namespace

std::unique_ptr<BucketSink> BucketSink::Create(const Options& options) {
  WEFT_CHECK(options.num_lhs_partitions >= 1 && options.num_rhs_partitions >= 1);
  const bool direct = !options.drop_duplicates &&
                      NumBuckets(options) <= static_cast<uint32_t>(options.max_open_buckets);
  if (direct) return std::make_unique<DirectBucketSink>(options);
  return std::make_unique<SortingBucketSink>(options);
}

}  // namespace weft
