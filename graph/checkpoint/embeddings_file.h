// One partition of one entity type on disk, in PBG's format: data set `embeddings` (float32
// [count, dimension]), `optimizer/state_dict` (a torch.save pickle of row-wise Adagrad's sums),
// attributes `format_version`, `config/json`, `iteration/...`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/embedding_partition.h"

namespace weft {

// Where in a run a checkpoint was written: PBG's attributes of the same names, and config/json.
struct CheckpointMetadata {
  std::string config_json;  // PBG's keys only
  int64_t num_epochs = 0;
  int64_t epoch_idx = 0;
  int64_t num_edge_paths = 0;
  int64_t edge_path_idx = 0;
  std::string edge_path;
  int64_t num_edge_chunks = 0;
  int64_t edge_chunk_idx = 0;
};

// Writes aside, fsyncs, renames to `path`. `lr` goes into the optimizer's parameter group.
absl::Status WriteEmbeddingsFile(const std::string& path, const EmbeddingPartition& partition,
                                 double lr, const CheckpointMetadata& metadata);

// Reads into a partition of exactly `count` x `dimension`. No optimizer state in the file: sums 0.
// Errors: NotFound, DataLoss (damaged; names file and data set), FailedPrecondition (another shape
// than asked for; names both).
absl::StatusOr<EmbeddingPartition> ReadEmbeddingsFile(const std::string& path, int64_t count,
                                                      int64_t dimension);

struct EmbeddingsShape {
  int64_t count = 0;
  int64_t dimension = 0;
};
absl::StatusOr<EmbeddingsShape> ReadEmbeddingsShape(const std::string& path);

}  // namespace weft
