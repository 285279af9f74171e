#include "services/trainer/local/local_init_checkpoint.h"

#include <algorithm>

#include "absl/strings/match.h"
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
  LocalInitCheckpoint checkpoint(config, version);
  if (pinned->pin.has_value()) {
    checkpoint.pin_ = std::make_shared<VersionPin>(*std::move(pinned->pin));
  }
  // A model file that is not there is told when it is read.
  const uint64_t digest =
      ReadEntitiesDigest(CheckpointDir(*config.init_path, {}).ModelPath(version)).value_or(0);
  if (digest == 0 || digest != data.entities_digest) {
    absl::StatusOr<std::optional<InitMoves>> moves = FindInitMoves(config, digest);
    if (!moves.ok()) return Annotate(moves.status(), context);
    if (moves->has_value()) {
      checkpoint.moves_ = **std::move(moves);
      const auto& relations = checkpoint.moves_.relations;
      if (const auto unknown = std::ranges::count(relations, -1); unknown > 0) {
        checkpoint.missing_.push_back(
            absl::StrCat(unknown, " of ", relations.size(), " relations by these names"));
      }
    } else if (digest != 0 && data.entities_digest != 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          context, ": was trained on entities with other names or in another order than those in ",
          config.entity_path, ", and the names that it was trained on are not at hand"));
    }
  }
  std::vector<std::string> problems;
  for (size_t t = 0; t < data.entity_counts.size(); ++t) {
    const auto type = static_cast<EntityTypeId>(t);
    std::vector<int64_t> counts = data.entity_counts[t];
    if (checkpoint.ByName(type)) counts.assign(checkpoint.moves_.types[t]->num_partitions, -1);
    WEFT_RETURN_IF_ERROR(Annotate(
        checkpoint.CheckTables(type, counts, config.EntityDimension(type), &problems), context));
  }
  if (version == 0 && std::ranges::find(checkpoint.has_, true) == checkpoint.has_.end()) {
    return absl::NotFoundError(absl::StrCat(
        context, ": has neither a committed checkpoint nor embeddings_TYPE_PARTITION.v0.h5"));
  }
  if (!problems.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(context, " does not fit this run:\n  ", absl::StrJoin(problems, "\n  ")));
  }
  return checkpoint;
}

bool LocalInitCheckpoint::ByName(EntityTypeId type) const {
  const auto t = static_cast<size_t>(type);
  return t < moves_.types.size() && moves_.types[t].has_value();
}

absl::Status LocalInitCheckpoint::CheckTables(EntityTypeId type, const std::vector<int64_t>& counts,
                                              int dimension, std::vector<std::string>* problems) {
  const std::string& name = type_names_[static_cast<size_t>(type)];
  std::vector<std::string> absent;
  for (int i = 0; i < static_cast<int>(counts.size()); ++i) {
    const std::string path = EmbeddingsPath(type, i);
    const absl::StatusOr<EmbeddingsShape> shape = ReadEmbeddingsShape(path);
    if (absl::IsNotFound(shape.status())) {
      absent.push_back(path);
      continue;
    }
    WEFT_RETURN_IF_ERROR(shape.status());
    const int64_t count = counts[static_cast<size_t>(i)];
    if ((count >= 0 && shape->count != count) || shape->dimension != dimension) {
      problems->push_back(absl::StrCat(
          path, ": is ", shape->count, " x ", shape->dimension, ", but this run needs ",
          count >= 0 ? absl::StrCat(count) : "any number", " x ", dimension));
    }
  }
  if (absent.size() == counts.size()) {
    missing_.push_back(absl::StrCat("entity type ", name));
    return absl::OkStatus();
  }
  for (const std::string& path : absent) problems->push_back(absl::StrCat(path, ": is missing"));
  has_[static_cast<size_t>(type)] = true;
  if (ByName(type)) {
    const InitMoves::EntityType& moves = *moves_.types[static_cast<size_t>(type)];
    if (moves.missing > 0) {
      missing_.push_back(absl::StrCat(moves.missing, " of ", moves.missing + moves.found,
                                      " entities of type ", name, " by these names"));
    }
    return absl::OkStatus();
  }
  const std::string beyond = EmbeddingsPath(type, static_cast<int>(counts.size()));
  if (ReadEmbeddingsShape(beyond).ok()) {
    problems->push_back(absl::StrCat(beyond, ": is there, but this run has ", counts.size(),
                                     " partitions of ", name));
  }
  return absl::OkStatus();
}

absl::Status LocalInitCheckpoint::ReadPartition(PartitionKey key,
                                                EmbeddingPartition* partition) const {
  if (ByName(key.entity_type)) return ReadByName(key, partition);
  WEFT_RETURN_IF_ERROR(
      ReadEmbeddingsFile(EmbeddingsPath(key.entity_type, key.partition), partition));
  std::ranges::fill(partition->adagrad_sums.span(), 0.0f);
  return absl::OkStatus();
}

absl::Status LocalInitCheckpoint::ReadByName(PartitionKey key,
                                             EmbeddingPartition* partition) const {
  const InitMoves::EntityType& type = *moves_.types[static_cast<size_t>(key.entity_type)];
  const std::vector<InitMoves::Move>& moves = type.moves[static_cast<size_t>(key.partition)];
  for (auto move = moves.begin(); move != moves.end();) {
    const int from = move->from_partition;
    const std::string path = EmbeddingsPath(key.entity_type, from);
    WEFT_ASSIGN_OR_RETURN(const EmbeddingsReader reader, EmbeddingsReader::Open(path));
    FloatBlock rows(reader.count(), reader.dimension());
    WEFT_RETURN_IF_ERROR(reader.Read(0, rows.span()));
    WEFT_RETURN_IF_ERROR(CheckFiniteRows(path, 0, rows.cols(), rows.span()));
    for (; move != moves.end() && move->from_partition == from; ++move) {
      if (move->from >= rows.rows()) {
        return absl::DataLossError(
            absl::StrCat("init_path: ", path, ": has fewer rows than its entities have names"));
      }
      std::ranges::copy(rows.row(move->from), partition->embeddings.row(move->to).begin());
    }
  }
  return absl::OkStatus();
}

// Those of dynamic relations have a row for each.
absl::Status LocalInitCheckpoint::CopyParameter(const Parameter& from, Parameter* to) const {
  std::vector<int64_t> shape = from.shape;
  const bool by_name = !moves_.relations.empty() && absl::StartsWith(to->name, "relations/");
  if (by_name && !shape.empty()) shape[0] = static_cast<int64_t>(moves_.relations.size());
  if (shape != to->shape) {
    return absl::FailedPreconditionError(
        absl::StrCat("init_path: ", CheckpointDir(folder_, {}).ModelPath(version_), ": ", to->name,
                     " has shape [", absl::StrJoin(from.shape, ", "), "], but this run needs [",
                     absl::StrJoin(to->shape, ", "), "]"));
  }
  if (!by_name) {
    std::ranges::copy(from.values.span(), to->values.data());
    return absl::OkStatus();
  }
  const auto size = static_cast<int64_t>(to->values.size()) / shape[0];
  for (size_t r = 0; r < moves_.relations.size(); ++r) {
    const int64_t row = moves_.relations[r];
    if (row < 0 || row >= from.shape[0]) continue;
    std::copy_n(from.values.data() + row * size, size,
                to->values.data() + static_cast<int64_t>(r) * size);
  }
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
  absl::StatusOr<ParameterSet> read = ReadModelFile(path);
  if (version_ == 0 && absl::IsNotFound(read.status())) read = ParameterSet();
  WEFT_ASSIGN_OR_RETURN(const ParameterSet stored, std::move(read));
  for (Parameter& parameter : live->parameters.all()) {
    const Parameter* from = stored.Find(parameter.name);
    if (from == nullptr) {
      LogWarning("not in the file, it starts with its initial value",
                 {{"parameter", parameter.name}, {"file", path}});
      continue;
    }
    WEFT_RETURN_IF_ERROR(CopyParameter(*from, &parameter));
  }
  return absl::OkStatus();
}

}  // namespace weft
