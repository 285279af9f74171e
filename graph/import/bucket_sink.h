// BucketSink writes the edges of one edge path into bucket files, in the order they come.
//
// Few buckets are written as the edges come. With more of them, or when duplicates are to be
// dropped, the edges are sorted by bucket first (ExternalPartitioner), and the files are written
// one after the other by Finish.
//
// Memory: about 2 MB a bucket while few are written at once; else `memory_bytes`, and while
// duplicates are dropped one bit an edge of the bucket at hand.
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dataset_manifest.h"
#include "graph/import/external_partitioner.h"
#include "services/common/feature_bags.h"

namespace weft {

class BucketSink {
 public:
  struct Options {
    std::string folder;        // where the bucket files go
    std::string spill_folder;  // for temporary files
    int num_lhs_partitions = 1;
    int num_rhs_partitions = 1;
    bool weighted = false;
    bool drop_duplicates = false;  // keeps the first of equal (lhs, rel, rhs), whatever the weight
    bool write_empty = true;       // PBG wants a file for every bucket
    int64_t memory_bytes = int64_t{64} << 20;
    int max_open_buckets = 16;
    // Featurized entity types: ids of edges are numbers of bags there, whose features are written.
    const DatasetSchema* schema = nullptr;
    const std::vector<FeatureBags>* bags = nullptr;  // by type; null: no type is featurized
  };
  struct Result {
    std::vector<DatasetManifest::BucketCount> buckets;  // the ones with edges, by (lhs, rhs)
    int64_t num_edges = 0;
    int64_t num_duplicates = 0;
  };

  static std::unique_ptr<BucketSink> Create(const Options& options);
  virtual ~BucketSink() = default;

  // buckets[i] = lhs partition * num_rhs_partitions + rhs partition, of edges[i].
  virtual absl::Status Add(std::span<const EdgeRecord> edges,
                           std::span<const uint32_t> buckets) = 0;

  // After the last Add: the files are complete; Publication makes them durable.
  virtual absl::StatusOr<Result> Finish() = 0;
};

}  // namespace weft
