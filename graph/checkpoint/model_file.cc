#include "graph/checkpoint/model_file.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/checkpoint/hdf5_parts.h"
#include "graph/checkpoint/optimizer_pickle.h"
#include "graph/hdf5_file.h"
#include "services/common/finite.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr char kGroup[] = "model";
constexpr char kEntitiesDigest[] = "weft_entities_xxh3";  // of the root

std::string DatasetOf(const Parameter& parameter) {
  return absl::StrCat(kGroup, "/", parameter.name);
}

// PBG's name of a parameter in its model:
//   relations/3/operator/rhs/real     rhs_operators.3.real
//   entities/user/global_embedding    global_embs.emb_user
absl::StatusOr<std::string> PrivateName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  if (parts.size() == 5 && parts[0] == "relations" && parts[2] == "operator") {
    return absl::StrCat(parts[3], "_operators.", parts[1], ".", parts[4]);
  }
  if (parts.size() == 3 && parts[0] == "entities" && parts[2] == "global_embedding") {
    return absl::StrCat("global_embs.emb_", parts[1]);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("parameter ", name,
                   ": a checkpoint holds relations/N/operator/SIDE/PARAMETER and "
                   "entities/TYPE/global_embedding only"));
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::Status CheckNoneUnknown(const Hdf5Reader& file, const ParameterSet& parameters) {
  absl::flat_hash_set<std::string> known;
  for (const Parameter& parameter : parameters.all()) known.insert(DatasetOf(parameter));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> present, file.ListDatasets(kGroup));
  for (const std::string& dataset : present) {
    if (!known.contains(dataset)) {
      return absl::FailedPreconditionError(absl::StrCat(
          file.path(), ": has parameter ", dataset.substr(sizeof(kGroup)),
          ", which this configuration does not have; were relations, operators or global_emb "
          "changed?"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadValues(const Hdf5Reader& file, Parameter* parameter) {
  const std::string dataset = DatasetOf(*parameter);
  const absl::StatusOr<std::vector<int64_t>> shape = file.Shape(dataset);
  if (absl::IsNotFound(shape.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path(), ": lacks parameter ", parameter->name,
                     ", which this configuration has; were relations, operators or global_emb "
                     "changed?"));
  }
  WEFT_RETURN_IF_ERROR(shape.status());
  if (*shape != parameter->shape) {
    return absl::FailedPreconditionError(absl::StrCat(
        file.path(), ": parameter ", parameter->name, " has shape ", ShapeText(*shape), ", but ",
        ShapeText(parameter->shape), " is wanted; were dimension or relations changed?"));
  }
  const int64_t rows = shape->empty() ? 1 : (*shape)[0];
  const std::span<float> values = parameter->values.span();
  WEFT_RETURN_IF_ERROR(file.ReadRows(dataset, 0, rows, values));
  const size_t bad = FirstNotFinite(values);
  if (bad == values.size()) return absl::OkStatus();
  return NotFiniteError(absl::StrCat(file.path(), ": parameter ", parameter->name), values[bad]);
}

absl::Status ReadSums(const OptimizerStateReader& state, ParameterSet* parameters) {
  if (state.parameters().size() != parameters->all().size()) {
    return absl::DataLossError(absl::StrCat("optimizer state: is of ", state.parameters().size(),
                                            " parameters, but there are ",
                                            parameters->all().size()));
  }
  for (size_t i = 0; i < state.parameters().size(); ++i) {
    Parameter& parameter = parameters->all()[i];
    const OptimizerStateReader::Parameter& stored = state.parameters()[i];
    if (stored.shape != parameter.shape) {
      return absl::DataLossError(absl::StrCat("optimizer state: parameter ", i, " has shape ",
                                              ShapeText(stored.shape), ", but ", parameter.name,
                                              " has ", ShapeText(parameter.shape)));
    }
    WEFT_RETURN_IF_ERROR(state.ReadSum(i, parameter.adagrad_sums.span()));
    parameters->steps = std::max(parameters->steps, stored.steps);
  }
  return absl::OkStatus();
}

absl::Status ReadOptimizer(const Hdf5Reader& file, ParameterSet* parameters) {
  parameters->steps = 0;
  WEFT_ASSIGN_OR_RETURN(const std::optional<OptimizerDataset> dataset,
                        OptimizerDataset::Find(file));
  if (!dataset.has_value()) {
    for (Parameter& parameter : parameters->all()) {
      std::ranges::fill(parameter.adagrad_sums.span(), 0.0f);
    }
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const OptimizerStateReader state, OptimizerStateReader::Open(&*dataset));
  return ReadSums(state, parameters);
}

// What is in the file but not as it should be is damage.
absl::Status AsDataLoss(const absl::Status& status) {
  if (absl::IsNotFound(status) || absl::IsInvalidArgument(status)) {
    return absl::DataLossError(status.message());
  }
  return status;
}

absl::Status ReadAllValues(const Hdf5Reader& file, ParameterSet* parameters) {
  for (Parameter& parameter : parameters->all()) {
    WEFT_RETURN_IF_ERROR(AsDataLoss(ReadValues(file, &parameter)));
  }
  return CheckNoneUnknown(file, *parameters);
}

}  // namespace

absl::Status WriteModelFile(const std::string& path, const ParameterSet& parameters, double lr,
                            const CheckpointMetadata& metadata) {
  WEFT_ASSIGN_OR_RETURN(Hdf5Writer file, Hdf5Writer::Create(path));
  WEFT_RETURN_IF_ERROR(WriteMetadata(metadata, &file));
  if (metadata.entities_digest != 0) {
    WEFT_RETURN_IF_ERROR(
        file.IntAttribute("/", kEntitiesDigest, static_cast<int64_t>(metadata.entities_digest)));
  }
  OptimizerState state;
  state.kind = OptimizerKind::kAsyncAdagrad;
  state.lr = lr;
  state.steps = parameters.steps;
  for (const Parameter& parameter : parameters.all()) {
    WEFT_ASSIGN_OR_RETURN(const std::string private_name, PrivateName(parameter.name));
    const std::string dataset = DatasetOf(parameter);
    WEFT_RETURN_IF_ERROR(file.Write(dataset, parameter.shape, parameter.values.span()));
    WEFT_RETURN_IF_ERROR(file.StringAttribute(dataset, "state_dict_key", private_name));
    state.parameters.push_back({parameter.shape, parameter.adagrad_sums.span()});
  }
  WEFT_RETURN_IF_ERROR(WriteOptimizerDataset(state, &file));
  return file.Finish();
}

absl::Status ReadModelFile(const std::string& path, ParameterSet* parameters) {
  WEFT_ASSIGN_OR_RETURN(const Hdf5Reader file, OpenCheckpointFile(path));
  WEFT_RETURN_IF_ERROR(ReadAllValues(file, parameters));
  return Annotate(AsDataLoss(ReadOptimizer(file, parameters)), path);
}

absl::Status ReadModelValues(const std::string& path, ParameterSet* parameters) {
  WEFT_ASSIGN_OR_RETURN(const Hdf5Reader file, OpenCheckpointFile(path));
  return ReadAllValues(file, parameters);
}

absl::StatusOr<uint64_t> ReadEntitiesDigest(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const Hdf5Reader file, OpenCheckpointFile(path));
  const absl::StatusOr<int64_t> digest = file.IntAttribute("/", kEntitiesDigest);
  if (absl::IsNotFound(digest.status())) return uint64_t{0};
  WEFT_RETURN_IF_ERROR(digest.status());
  return static_cast<uint64_t>(*digest);
}

absl::StatusOr<ParameterSet> ReadModelFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const Hdf5Reader file, OpenCheckpointFile(path));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> datasets, file.ListDatasets(kGroup));
  ParameterSet parameters;
  for (const std::string& dataset : datasets) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, file.Shape(dataset));
    int64_t rows = shape.size() > 1 ? shape[0] : 1;
    int64_t cols = 1;
    for (size_t i = shape.size() > 1 ? 1 : 0; i < shape.size(); ++i) cols *= shape[i];
    if (rows * cols > file.size() / static_cast<int64_t>(sizeof(float))) {
      return absl::DataLossError(
          absl::StrCat(path, ": data set ", dataset, " is larger than its file"));
    }
    Parameter& parameter = parameters.Add(dataset.substr(sizeof(kGroup)), shape, rows, cols);
    WEFT_RETURN_IF_ERROR(AsDataLoss(ReadValues(file, &parameter)));
  }
  return parameters;
}

}  // namespace weft
