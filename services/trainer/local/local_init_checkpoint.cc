#include "services/trainer/local/local_init_checkpoint.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "services/common/logging.h"
#include "services/common/status_macros.h"

namespace weft {

LocalInitCheckpoint::LocalInitCheckpoint(const RunConfig& config, int64_t version)
    : folder_(*config.init_path), version_(version) {
  for (const EntityConfig& type : config.entities) type_names_.push_back(type.name);
  has_.resize(type_names_.size());
}

std::string LocalInitCheckpoint::EmbeddingsPath(EntityTypeId type, int partition) const {
  return CheckpointDir(folder_, {})
      .EmbeddingsPath(type_names_[static_cast<size_t>(type)], partition, version_);
}

absl::StatusOr<LocalInitCheckpoint> LocalInitCheckpoint::Open(const RunConfig& config,
                                                              const LocalData& data) {
  const std::string context = absl::StrCat("init_path ", *config.init_path);
  absl::StatusOr<CheckpointDir::PinnedVersion> pinned =
      CheckpointDir(*config.init_path, {}).PinCommittedVersion();
  if (!pinned.ok()) return Annotate(pinned.status(), context);
  const int64_t version = pinned->version;
  if (version == 0) {
    return absl::NotFoundError(absl::StrCat(context, ": has no committed checkpoint"));
  }
  const std::vector<std::vector<int64_t>>& entity_counts = data.entity_counts;
  LocalInitCheckpoint checkpoint(config, version);
  checkpoint.pin_ = std::make_shared<VersionPin>(*std::move(pinned->pin));
  // A model file that is not there is told when it is read.
  const uint64_t digest =
      ReadEntitiesDigest(CheckpointDir(*config.init_path, {}).ModelPath(version)).value_or(0);
  if (digest != 0 && data.entities_digest != 0 && digest != data.entities_digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        context, ": was trained on entities with other names or in another order than those in ",
        config.entity_path));
  }
  std::vector<std::string> problems;
  for (size_t t = 0; t < entity_counts.size(); ++t) {
    const auto type = static_cast<EntityTypeId>(t);
    const std::vector<int64_t>& counts = entity_counts[t];
    std::vector<std::string> absent;
    for (int i = 0; i < static_cast<int>(counts.size()); ++i) {
      const std::string path = checkpoint.EmbeddingsPath(type, i);
      const absl::StatusOr<EmbeddingsShape> shape = ReadEmbeddingsShape(path);
      if (absl::IsNotFound(shape.status())) {
        absent.push_back(path);
        continue;
      }
      if (!shape.ok()) return Annotate(shape.status(), context);
      const int64_t count = counts[static_cast<size_t>(i)];
      const int dimension = config.EntityDimension(type);
      if (shape->count != count || shape->dimension != dimension) {
        problems.push_back(absl::StrCat(path, ": is ", shape->count, " x ", shape->dimension,
                                        ", but this run needs ", count, " x ", dimension));
      }
    }
    if (absent.size() == counts.size()) {
      checkpoint.missing_.push_back(absl::StrCat("entity type ", config.entities[t].name));
      continue;
    }
    for (const std::string& path : absent) problems.push_back(absl::StrCat(path, ": is missing"));
    const std::string beyond = checkpoint.EmbeddingsPath(type, static_cast<int>(counts.size()));
    if (ReadEmbeddingsShape(beyond).ok()) {
      problems.push_back(absl::StrCat(beyond, ": is there, but this run has ", counts.size(),
                                      " partitions of ", config.entities[t].name));
    }
    checkpoint.has_[t] = true;
  }
  if (!problems.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(context, " does not fit this run:\n  ", absl::StrJoin(problems, "\n  ")));
  }
  return checkpoint;
}

absl::Status LocalInitCheckpoint::ReadPartition(PartitionKey key,
                                                EmbeddingPartition* partition) const {
  WEFT_RETURN_IF_ERROR(
      ReadEmbeddingsFile(EmbeddingsPath(key.entity_type, key.partition), partition));
  std::ranges::fill(partition->adagrad_sums.span(), 0.0f);
  return absl::OkStatus();
}

absl::Status LocalInitCheckpoint::ReadShared(SharedState* live) const {
  for (size_t t = 0; t < live->unpartitioned.size(); ++t) {
    const auto type = static_cast<EntityTypeId>(t);
    EmbeddingPartition& table = live->unpartitioned[t];
    if (table.count() == 0 || !Has(type)) continue;
    WEFT_RETURN_IF_ERROR(ReadPartition({type, 0}, &table));
  }
  const std::string path = CheckpointDir(folder_, {}).ModelPath(version_);
  WEFT_ASSIGN_OR_RETURN(const ParameterSet stored, ReadModelFile(path));
  for (Parameter& parameter : live->parameters.all()) {
    const Parameter* from = stored.Find(parameter.name);
    if (from == nullptr) {
      WEFT_LOG_WARNING("{} has no {}: it starts with its initial value", path, parameter.name);
      continue;
    }
    if (from->shape != parameter.shape) {
      return absl::FailedPreconditionError(
          absl::StrCat("init_path: ", path, ": ", parameter.name, " has shape [",
                       absl::StrJoin(from->shape, ", "), "], but this run needs [",
                       absl::StrJoin(parameter.shape, ", "), "]"));
    }
    std::ranges::copy(from->values.span(), parameter.values.data());
  }
  return absl::OkStatus();
}

}  // namespace weft
