#include "graph/checkpoint/embeddings_file.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/checkpoint/hdf5_parts.h"
#include "graph/checkpoint/optimizer_pickle.h"
#include "graph/hdf5_file.h"
#include "services/common/finite.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr char kDataset[] = "embeddings";
// Of the root: the checksum of vectors and sums. Files of PBG have none.
constexpr char kChecksum[] = "weft_xxh3";

// A data set that is not there or of another type: the file is not what its name says.
absl::Status AsDataLoss(const absl::Status& status) {
  if (absl::IsNotFound(status) || absl::IsInvalidArgument(status)) {
    return absl::DataLossError(status.message());
  }
  return status;
}

absl::Status ReadVectors(const EmbeddingsReader& reader, const std::string& path,
                         FloatBlock* embeddings) {
  if (reader.count() != embeddings->rows() || reader.dimension() != embeddings->cols()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": holds ", reader.count(), " entities of dimension ",
                     reader.dimension(), ", but ", embeddings->rows(), " of dimension ",
                     embeddings->cols(), " are wanted; were entities or dimension changed?"));
  }
  WEFT_RETURN_IF_ERROR(reader.Read(0, embeddings->span()));
  return CheckFiniteRows(path, 0, embeddings->cols(), embeddings->span());
}

absl::Status ReadSums(const Hdf5Reader& file, FloatBlock* sums) {
  WEFT_ASSIGN_OR_RETURN(const std::optional<OptimizerDataset> dataset,
                        OptimizerDataset::Find(file));
  if (!dataset.has_value()) {
    std::ranges::fill(sums->span(), 0.0f);
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const OptimizerStateReader state, OptimizerStateReader::Open(&*dataset));
  if (state.parameters().size() != 1 ||
      state.parameters()[0].shape != std::vector<int64_t>{sums->rows()}) {
    return absl::DataLossError(
        absl::StrCat("optimizer state: is not one sum for each of ", sums->rows(), " rows"));
  }
  return state.ReadSum(0, sums->span());
}

}  // namespace

absl::Status CheckFiniteRows(const std::string& path, int64_t begin, int64_t dimension,
                             std::span<const float> rows) {
  const size_t bad = FirstNotFinite(rows);
  if (bad == rows.size()) return absl::OkStatus();
  const int64_t row = begin + static_cast<int64_t>(bad) / dimension;
  return NotFiniteError(absl::StrCat(path, ": row ", row), rows[bad]);
}

absl::Status WriteEmbeddingsFile(const std::string& path, const EmbeddingPartition& partition,
                                 double lr, const CheckpointMetadata& metadata) {
  WEFT_ASSIGN_OR_RETURN(Hdf5Writer file, Hdf5Writer::Create(path));
  WEFT_RETURN_IF_ERROR(WriteMetadata(metadata, &file));
  WEFT_RETURN_IF_ERROR(
      file.IntAttribute("/", kChecksum, static_cast<int64_t>(Checksum(partition))));
  const int64_t shape[] = {partition.count(), partition.dimension()};
  WEFT_RETURN_IF_ERROR(file.Write(kDataset, shape, partition.embeddings.span()));
  OptimizerState state;
  state.lr = lr;
  state.parameters = {{{partition.count()}, partition.adagrad_sums.span()}};
  WEFT_RETURN_IF_ERROR(WriteOptimizerDataset(state, &file));
  return file.Finish();
}

absl::Status ReadEmbeddingsFile(const std::string& path, EmbeddingPartition* partition) {
  WEFT_ASSIGN_OR_RETURN(const EmbeddingsReader reader, EmbeddingsReader::Open(path));
  WEFT_RETURN_IF_ERROR(ReadVectors(reader, path, &partition->embeddings));
  WEFT_ASSIGN_OR_RETURN(const Hdf5Reader file, OpenCheckpointFile(path));
  WEFT_RETURN_IF_ERROR(Annotate(AsDataLoss(ReadSums(file, &partition->adagrad_sums)), path));
  const absl::StatusOr<int64_t> checksum = file.IntAttribute("/", kChecksum);
  if (checksum.ok() && static_cast<uint64_t>(*checksum) != Checksum(*partition)) {
    return absl::DataLossError(
        absl::StrCat(path, ": checksum mismatch: it was damaged or changed after it was written; ",
                     "if the change is meant, remove its attribute ", kChecksum));
  }
  return absl::OkStatus();
}

absl::StatusOr<EmbeddingPartition> ReadEmbeddingsFile(const std::string& path, int64_t count,
                                                      int64_t dimension) {
  EmbeddingPartition partition(count, dimension);
  WEFT_RETURN_IF_ERROR(ReadEmbeddingsFile(path, &partition));
  return partition;
}

absl::StatusOr<EmbeddingsShape> ReadEmbeddingsShape(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const EmbeddingsReader reader, EmbeddingsReader::Open(path));
  return EmbeddingsShape{reader.count(), reader.dimension()};
}

absl::StatusOr<EmbeddingsReader> EmbeddingsReader::Open(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(Hdf5Reader file, OpenCheckpointFile(path));
  const absl::StatusOr<std::vector<int64_t>> shape = file.Shape(kDataset);
  if (!shape.ok()) return AsDataLoss(shape.status());
  if (shape->size() != 2) {
    return absl::DataLossError(absl::StrCat(path, ": data set ", kDataset, " has ", shape->size(),
                                            " dimensions, needs 2"));
  }
  const int64_t count = (*shape)[0];
  const int64_t dimension = (*shape)[1];
  // Who reads it will want as much memory.
  if (count * dimension > file.size() / static_cast<int64_t>(sizeof(float))) {
    return absl::DataLossError(
        absl::StrCat(path, ": data set ", kDataset, " is larger than its file"));
  }
  return EmbeddingsReader(std::move(file), count, dimension);
}

absl::Status EmbeddingsReader::Read(int64_t begin, std::span<float> rows) const {
  if (rows.empty()) return absl::OkStatus();
  const auto count = static_cast<int64_t>(rows.size()) / dimension_;
  return AsDataLoss(file_.ReadRows(kDataset, begin, count, rows));
}

}  // namespace weft
