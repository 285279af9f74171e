#include "cli/checkpoint_loader.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/reference_hook.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "graph/dataset_manifest.h"
#include "graph/entity_files.h"
#include "services/common/file_util.h"
#include "services/common/nearest_key.h"
#include "services/common/status_macros.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/model/model_parameters.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceFloats = (int64_t{16} << 20) / sizeof(float);

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The configuration beside a checkpoint, in the folder itself or, for epoch_N, in the one above.
absl::StatusOr<std::string> FindConfig(const fs::path& folder) {
  for (const char* name : {"weft_config.json", "config.json"}) {
    if (Exists(folder / name)) return (folder / name).string();
  }
  if (Exists(folder)) {
    return absl::NotFoundError(absl::StrCat(
        folder.string(), ": is no checkpoint (it holds neither weft_config.json nor config.json)"));
  }
  return absl::NotFoundError(absl::StrCat(folder.string(), ": no such file or folder"));
}

bool HasEntities(const fs::path& folder, const RunConfig& config) {
  return std::ranges::any_of(config.entities, [&](const EntityConfig& type) {
    return Exists(EntityCountPath(folder.string(), type.name, 0)) ||
           Exists(EntityNamesPath(folder.string(), type.name, 0));
  });
}

// What a checkpoint does not hold.
absl::Status NotInEntityPath(absl::string_view what, const absl::Status& status) {
  return absl::NotFoundError(absl::StrCat(
      what, " not there (", status.message(),
      "); weft import writes them into entity_path: name that folder with --entities"));
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const Options& options) {
  Checkpoint checkpoint;
  std::error_code error;
  const bool is_config = fs::is_regular_file(options.path, error);
  std::string config_path = options.path;
  if (!is_config) {
    WEFT_ASSIGN_OR_RETURN(config_path, FindConfig(options.path));
  }
  WEFT_ASSIGN_OR_RETURN(ConfigResult loaded,
                        LoadRunConfig(config_path, options.overrides, ProgramConfigOptions()));
  checkpoint.config_ = std::move(loaded.config);
  checkpoint.warnings_ = std::move(loaded.warnings);
  RunConfig& config = checkpoint.config_;

  const std::string folder = is_config ? config.checkpoint_path : options.path;
  if (!options.entity_path.empty()) {
    config.entity_path = options.entity_path;
  } else if (!is_config && !HasEntities(config.entity_path, config)) {
    const fs::path run_folder = RunFolderOf(folder, config.checkpoint_path);
    if (!run_folder.empty() && HasEntities(run_folder / config.entity_path, config)) {
      config.entity_path = (run_folder / config.entity_path).string();
    }
  }
  config.checkpoint_path = folder;

  WEFT_RETURN_IF_ERROR(checkpoint.FindVersion());
  WEFT_RETURN_IF_ERROR(checkpoint.CountEntities());
  WEFT_RETURN_IF_ERROR(checkpoint.CheckNames());
  int64_t num_relations = 0;
  if (config.dynamic_relations) {
    const absl::StatusOr<int64_t> count = ReadRelationCount(config.entity_path);
    if (absl::IsNotFound(count.status())) {
      return NotInEntityPath("the relations are", count.status());
    }
    WEFT_ASSIGN_OR_RETURN(num_relations, count);
  }
  WEFT_ASSIGN_OR_RETURN(checkpoint.spec_, MakeModelSpec(config, num_relations));
  return checkpoint;
}

absl::Status Checkpoint::FindVersion() {
  std::vector<CheckpointDir::EntityType> types;
  for (size_t t = 0; t < config_.entities.size(); ++t) {
    if (!IsTrained(config_, static_cast<EntityTypeId>(t))) continue;
    types.push_back({config_.entities[t].name, config_.entities[t].num_partitions});
  }
  std::string warning;
  WEFT_ASSIGN_OR_RETURN(
      CheckpointDir::PinnedVersion pinned,
      CheckpointDir(config_.checkpoint_path, types).PinCommittedVersion(&warning));
  version_ = pinned.version;
  pin_ = std::move(pinned.pin);
  if (!warning.empty()) warnings_.push_back(std::move(warning));
  if (version_ > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      config_.checkpoint_path, ": holds no trained version yet; run weft train first"));
}

absl::Status Checkpoint::CountEntities() {
  for (size_t t = 0; t < config_.entities.size(); ++t) {
    const EntityConfig& type = config_.entities[t];
    std::vector<int64_t>& counts = entity_counts_.emplace_back();
    for (PartitionId p = 0; p < type.num_partitions; ++p) {
      const PartitionKey key{static_cast<EntityTypeId>(t), p};
      if (!IsTrained(config_, key.entity_type) && !Exists(EmbeddingsPath(key))) {
        counts.push_back(0);
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(const EmbeddingsShape shape, ReadEmbeddingsShape(EmbeddingsPath(key)));
      if (shape.dimension != config_.EntityDimension(key.entity_type)) {
        return absl::FailedPreconditionError(absl::StrCat(
            EmbeddingsPath(key), ": has dimension ", shape.dimension,
            ", but the configuration says ", config_.EntityDimension(key.entity_type)));
      }
      const absl::StatusOr<int64_t> count = ReadEntityCount(config_.entity_path, type.name, p);
      if (count.ok() && *count != shape.count) {
        return absl::FailedPreconditionError(
            absl::StrCat(EntityCountPath(config_.entity_path, type.name, p), " says ", *count,
                         " entities, but ", EmbeddingsPath(key), " holds ", shape.count,
                         "; were the data imported anew after the training?"));
      }
      counts.push_back(shape.count);
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::CheckNames() const {
  WEFT_ASSIGN_OR_RETURN(
      const uint64_t trained,
      ReadEntitiesDigest(CheckpointDir(config_.checkpoint_path, {}).ModelPath(version_)));
  WEFT_ASSIGN_OR_RETURN(const uint64_t here, EntitiesDigest(config_.entity_path));
  if (trained == 0 || here == 0 || trained == here) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(config_.entity_path, ": holds other names or in another order than those that ",
                   config_.checkpoint_path, " was trained on; were the data imported anew?"));
}

std::string Checkpoint::EmbeddingsPath(PartitionKey key) const {
  return CheckpointDir(config_.checkpoint_path, {})
      .EmbeddingsPath(config_.entities[key.entity_type].name, key.partition, version_);
}

absl::Status Checkpoint::CheckFinite(PartitionKey key, int64_t first,
                                     std::span<const float> rows) const {
  return CheckFiniteRows(EmbeddingsPath(key), first, config_.EntityDimension(key.entity_type),
                         rows);
}

absl::Status Checkpoint::VisitEmbeddings(
    PartitionKey key,
    const std::function<absl::Status(int64_t, std::span<const float>)>& visit) const {
  WEFT_ASSIGN_OR_RETURN(const EmbeddingsReader reader, EmbeddingsReader::Open(EmbeddingsPath(key)));
  const int64_t step =
      std::max<int64_t>(1, kPieceFloats / std::max<int64_t>(1, reader.dimension()));
  FloatBlock piece(std::min(step, reader.count()), reader.dimension());
  for (int64_t first = 0; first < reader.count(); first += step) {
    const int64_t count = std::min(step, reader.count() - first);
    const std::span<float> rows =
        piece.span().first(static_cast<size_t>(count * reader.dimension()));
    WEFT_RETURN_IF_ERROR(reader.Read(first, rows));
    WEFT_RETURN_IF_ERROR(CheckFinite(key, first, rows));
    WEFT_RETURN_IF_ERROR(visit(first, rows));
  }
  return absl::OkStatus();
}

absl::StatusOr<FloatBlock> Checkpoint::ReadEmbeddings(PartitionKey key) const {
  WEFT_ASSIGN_OR_RETURN(const EmbeddingsReader reader, EmbeddingsReader::Open(EmbeddingsPath(key)));
  FloatBlock block(reader.count(), reader.dimension());
  WEFT_RETURN_IF_ERROR(reader.Read(0, block.span()));
  WEFT_RETURN_IF_ERROR(CheckFinite(key, 0, block.span()));
  return block;
}

absl::StatusOr<std::vector<float>> Checkpoint::ReadEmbedding(PartitionKey key,
                                                             EntityOffset offset) const {
  WEFT_ASSIGN_OR_RETURN(const EmbeddingsReader reader, EmbeddingsReader::Open(EmbeddingsPath(key)));
  std::vector<float> row(static_cast<size_t>(reader.dimension()));
  WEFT_RETURN_IF_ERROR(reader.Read(offset, row));
  WEFT_RETURN_IF_ERROR(CheckFinite(key, offset, row));
  return row;
}

absl::StatusOr<ParameterSet> Checkpoint::ReadParameters() const {
  const std::string path = CheckpointDir(config_.checkpoint_path, {}).ModelPath(version_);
  const bool custom = std::ranges::any_of(
      spec_.relations, [](const RelationSpec& r) { return r.op == Operator::kCustom; });
  if (custom) return ReadModelFile(path);
  ParameterSet parameters = MakeInitialParameters(spec_);
  WEFT_RETURN_IF_ERROR(ReadModelValues(path, &parameters));
  return parameters;
}

absl::StatusOr<std::vector<std::string>> Checkpoint::EntityNames(PartitionKey key) const {
  const std::string& type = config_.entities[key.entity_type].name;
  absl::StatusOr<std::vector<std::string>> names =
      ReadEntityNames(config_.entity_path, type, key.partition);
  if (absl::IsNotFound(names.status())) {
    return NotInEntityPath("the names of the entities are", names.status());
  }
  WEFT_RETURN_IF_ERROR(names.status());
  const int64_t count = entity_counts_[key.entity_type][key.partition];
  if (static_cast<int64_t>(names->size()) != count) {
    return absl::FailedPreconditionError(
        absl::StrCat(EntityNamesPath(config_.entity_path, type, key.partition), ": has ",
                     names->size(), " names, but the checkpoint has ", count, " entities"));
  }
  return names;
}

absl::StatusOr<std::vector<std::string>> Checkpoint::RelationNames() const {
  std::vector<std::string> names;
  if (!spec_.dynamic()) {
    for (const RelationConfig& relation : config_.relations) names.push_back(relation.name);
    return names;
  }
  absl::StatusOr<std::vector<std::string>> read = ReadRelationNames(config_.entity_path);
  if (absl::IsNotFound(read.status())) {
    return NotInEntityPath("the names of the relations are", read.status());
  }
  WEFT_RETURN_IF_ERROR(read.status());
  if (static_cast<int64_t>(read->size()) != spec_.num_dynamic_relations) {
    return absl::FailedPreconditionError(
        absl::StrCat(RelationNamesPath(config_.entity_path), ": has ", read->size(),
                     " names, but there are ", spec_.num_dynamic_relations, " relations"));
  }
  return read;
}

absl::StatusOr<EntityTypeId> Checkpoint::FindEntityType(const std::string& name) const {
  std::vector<std::string> names;
  for (size_t t = 0; t < config_.entities.size(); ++t) {
    if (config_.entities[t].name == name) return static_cast<EntityTypeId>(t);
    names.push_back(config_.entities[t].name);
  }
  return absl::NotFoundError(
      absl::StrCat("there is no entity type \"", name, "\"", Suggestion(name, names)));
}

}  // namespace weft::cli
