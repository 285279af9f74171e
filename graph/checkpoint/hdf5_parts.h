// What embedding files and model files have in common. Private to graph/checkpoint.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/checkpoint/checkpoint_metadata.h"
#include "graph/checkpoint/optimizer_pickle.h"
#include "graph/checkpoint/random_access.h"
#include "graph/hdf5_file.h"

namespace weft {

// The attributes of the root: format_version, config/json, iteration/...
absl::Status WriteMetadata(const CheckpointMetadata& metadata, Hdf5Writer* file);

// Opens a file of this format. Errors: NotFound (no such file), DataLoss, FailedPrecondition
// (another format_version).
absl::StatusOr<Hdf5Reader> OpenCheckpointFile(const std::string& path);

// The data set `optimizer/state_dict`.
absl::Status WriteOptimizerDataset(const OptimizerState& state, Hdf5Writer* file);

// The bytes of the data set `optimizer/state_dict`. `file` must outlive it.
class OptimizerDataset : public RandomAccessSource {
 public:
  // Nothing when the file has no such data set.
  static absl::StatusOr<std::optional<OptimizerDataset>> Find(const Hdf5Reader& file);

  int64_t size() const override { return size_; }
  absl::Status Read(int64_t begin, std::span<char> out) const override;

 private:
  OptimizerDataset(const Hdf5Reader* file, int64_t size) : file_(file), size_(size) {}

  const Hdf5Reader* file_;
  int64_t size_;
};

// DataLoss: "WHERE holds VALUE, which is not a finite number", and what to do.
absl::Status NotFiniteError(absl::string_view where, float value);

}  // namespace weft
