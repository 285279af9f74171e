// One partition of one entity type on disk, in PBG's format: data set `embeddings` (float32
// [count, dimension]), `optimizer/state_dict` (a torch.save pickle of row-wise Adagrad's sums),
// attributes `format_version`, `config/json`, `iteration/...`. Beyond PBG's, an attribute
// `weft_xxh3`: the checksum of vectors and sums, which reading both verifies.
//
// Tables are written from and read into their blocks, without a copy in memory.
// Thread-safety: any number of files at once; HDF5 itself lets one thread at a time do its work.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/checkpoint/checkpoint_metadata.h"
#include "graph/hdf5_file.h"
#include "services/common/embedding_partition.h"

namespace weft {

// Writes aside, fsyncs, renames to `path`. `lr` goes into the optimizer's parameter group.
// Errors: ResourceExhausted (disk full), PermissionDenied, NotFound (no such folder), Internal.
absl::Status WriteEmbeddingsFile(const std::string& path, const EmbeddingPartition& partition,
                                 double lr, const CheckpointMetadata& metadata);

// Fills `partition`, which has the count and dimension that are wanted. No optimizer state in the
// file: sums 0.
// Errors: NotFound, DataLoss (damaged, or a number is not finite; names file and data set or row),
// FailedPrecondition (another shape than wanted; names both).
absl::Status ReadEmbeddingsFile(const std::string& path, EmbeddingPartition* partition);
// The same into a new partition of `count` x `dimension`.
absl::StatusOr<EmbeddingPartition> ReadEmbeddingsFile(const std::string& path, int64_t count,
                                                      int64_t dimension);

struct EmbeddingsShape {
  int64_t count = 0;
  int64_t dimension = 0;
};
absl::StatusOr<EmbeddingsShape> ReadEmbeddingsShape(const std::string& path);

// Errors: DataLoss, naming the row, when one of these rows of the file, the first of which is
// row `begin`, is not finite.
absl::Status CheckFiniteRows(const std::string& path, int64_t begin, int64_t dimension,
                             std::span<const float> rows);

// The vectors alone, piece by piece. Thread-safety: none.
class EmbeddingsReader {
 public:
  // Errors: NotFound, DataLoss (damaged; names file and data set).
  static absl::StatusOr<EmbeddingsReader> Open(const std::string& path);

  int64_t count() const { return count_; }
  int64_t dimension() const { return dimension_; }
  // Reads whole rows from row `begin`; `rows` has a multiple of dimension() floats. Errors:
  // DataLoss.
  absl::Status Read(int64_t begin, std::span<float> rows) const;

 private:
  EmbeddingsReader(Hdf5Reader file, int64_t count, int64_t dimension)
      : file_(std::move(file)), count_(count), dimension_(dimension) {}

  Hdf5Reader file_;
  int64_t count_;
  int64_t dimension_;
};

}  // namespace weft
