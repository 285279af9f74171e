#include "graph/checkpoint/hdf5_parts.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr char kOptimizerDataset[] = "optimizer/state_dict";

class DatasetSink : public RandomAccessSink {
 public:
  explicit DatasetSink(Hdf5Writer* file) : file_(file) {}
  absl::Status Write(int64_t begin, std::string_view bytes) override {
    return file_->WriteOpaque(kOptimizerDataset, begin, bytes);
  }

 private:
  Hdf5Writer* const file_;
};

}  // namespace

absl::Status WriteMetadata(const CheckpointMetadata& metadata, Hdf5Writer* file) {
  WEFT_RETURN_IF_ERROR(file->IntAttribute("/", "format_version", kFormatVersion));
  WEFT_RETURN_IF_ERROR(file->StringAttribute("/", "config/json", metadata.config_json));
  const std::pair<const char*, int64_t> numbers[] = {
      {"num_epochs", metadata.num_epochs},           {"epoch_idx", metadata.epoch_idx},
      {"num_edge_paths", metadata.num_edge_paths},   {"edge_path_idx", metadata.edge_path_idx},
      {"num_edge_chunks", metadata.num_edge_chunks}, {"edge_chunk_idx", metadata.edge_chunk_idx},
  };
  for (const auto& [name, value] : numbers) {
    WEFT_RETURN_IF_ERROR(file->IntAttribute("/", absl::StrCat("iteration/", name), value));
  }
  return file->StringAttribute("/", "iteration/edge_path", metadata.edge_path);
}

absl::Status NotFiniteError(absl::string_view where, float value) {
  return absl::DataLossError(absl::StrCat(
      where, " holds ", value,
      ", which is not a finite number; the training diverged: go back to an earlier version, with "
      "a lower lr"));
}

absl::StatusOr<Hdf5Reader> OpenCheckpointFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(Hdf5Reader file, Hdf5Reader::Open(path));
  const absl::StatusOr<int64_t> version = file.IntAttribute("/", "format_version");
  if (absl::IsNotFound(version.status()) || absl::IsInvalidArgument(version.status())) {
    return absl::DataLossError(version.status().message());
  }
  WEFT_RETURN_IF_ERROR(version.status());
  if (*version != kFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": format_version is ", *version,
                                                      "; only ", kFormatVersion, " is known"));
  }
  return file;
}

absl::Status WriteOptimizerDataset(const OptimizerState& state, Hdf5Writer* file) {
  // Twice: HDF5 wants the size first, and the archive shall not lie in memory.
  WEFT_ASSIGN_OR_RETURN(const int64_t size, WriteOptimizerState(state, nullptr));
  WEFT_RETURN_IF_ERROR(file->CreateOpaque(kOptimizerDataset, size));
  DatasetSink sink(file);
  return WriteOptimizerState(state, &sink).status();
}

absl::StatusOr<std::optional<OptimizerDataset>> OptimizerDataset::Find(const Hdf5Reader& file) {
  if (!file.HasDataset(kOptimizerDataset)) return std::optional<OptimizerDataset>();
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, file.Shape(kOptimizerDataset));
  if (shape.size() != 1) {
    return absl::DataLossError(
        absl::StrCat(file.path(), ": data set ", kOptimizerDataset, " is no row of bytes"));
  }
  return std::optional(OptimizerDataset(&file, shape[0]));
}

absl::Status OptimizerDataset::Read(int64_t begin, std::span<char> out) const {
  return file_->ReadOpaque(kOptimizerDataset, begin, out);
}

}  // namespace weft
