#include "services/trainer/local/local_init_names.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/dataset_manifest.h"
#include "graph/entity_files.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

using Names = std::vector<std::vector<std::string>>;  // [partition]

// The configuration of the run that made the checkpoint, if it can be read.
std::optional<RunConfig> ConfigOf(const std::string& init_path) {
  const CheckpointDir dir(init_path, {});
  for (const std::string& path : {dir.WeftConfigPath(), dir.ConfigPath()}) {
    absl::StatusOr<ConfigResult> result = LoadRunConfig(path, {{"compute=reference"}});
    if (result.ok()) return std::move(result->config);
  }
  return std::nullopt;
}

// Where the dictionaries of the other run are: its entity_path may be relative to a folder of its
// own. Nothing when they are not there, or no longer those of the checkpoint.
std::optional<std::string> EntityPathOf(const RunConfig& other, const std::string& init_path,
                                        uint64_t digest) {
  std::vector<std::string> candidates;
  const std::string run_folder = RunFolderOf(init_path, other.checkpoint_path);
  if (!run_folder.empty()) candidates.push_back(run_folder + "/" + other.entity_path);
  candidates.push_back(other.entity_path);
  for (const std::string& path : candidates) {
    if (!ReadEntityCount(path, other.entities[0].name, 0).ok()) continue;
    if (digest == 0 || EntitiesDigest(path).value_or(0) == digest) return path;
  }
  return std::nullopt;
}

// Nothing when there are no names.
absl::StatusOr<std::optional<Names>> NamesOf(const std::string& entity_path,
                                             const EntityConfig& type) {
  Names names;
  for (int p = 0; p < type.num_partitions; ++p) {
    absl::StatusOr<std::vector<std::string>> read = ReadEntityNames(entity_path, type.name, p);
    if (absl::IsNotFound(read.status())) return std::nullopt;
    WEFT_RETURN_IF_ERROR(read.status());
    names.push_back(*std::move(read));
  }
  return names;
}

InitMoves::EntityType MovesBetween(const Names& there, const Names& here) {
  absl::flat_hash_map<absl::string_view, std::pair<int, int64_t>> places;
  for (size_t p = 0; p < there.size(); ++p) {
    for (size_t i = 0; i < there[p].size(); ++i) {
      places.try_emplace(there[p][i], static_cast<int>(p), static_cast<int64_t>(i));
    }
  }
  InitMoves::EntityType type;
  type.num_partitions = static_cast<int>(there.size());
  for (const std::vector<std::string>& names : here) {
    std::vector<InitMoves::Move>& moves = type.moves.emplace_back();
    for (size_t i = 0; i < names.size(); ++i) {
      const auto found = places.find(names[i]);
      if (found == places.end()) continue;
      moves.push_back({found->second.first, found->second.second, static_cast<int64_t>(i)});
    }
    std::ranges::stable_sort(moves, {}, &InitMoves::Move::from_partition);
    type.found += static_cast<int64_t>(moves.size());
    type.missing += static_cast<int64_t>(names.size() - moves.size());
  }
  return type;
}

}  // namespace

bool InitMoves::empty() const {
  return relations.empty() &&
         std::ranges::none_of(types, [](const auto& type) { return type.has_value(); });
}

absl::StatusOr<std::optional<InitMoves>> FindInitMoves(const RunConfig& config,
                                                       uint64_t entities_digest) {
  const std::optional<RunConfig> other = ConfigOf(*config.init_path);
  if (!other.has_value()) return std::nullopt;
  const std::optional<std::string> there = EntityPathOf(*other, *config.init_path, entities_digest);
  if (!there.has_value()) return std::nullopt;
  InitMoves moves;
  for (const EntityConfig& type : config.entities) {
    moves.types.emplace_back();
    const auto same = std::ranges::find(other->entities, type.name, &EntityConfig::name);
    if (same == other->entities.end()) continue;
    WEFT_ASSIGN_OR_RETURN(const std::optional<Names> theirs, NamesOf(*there, *same));
    WEFT_ASSIGN_OR_RETURN(const std::optional<Names> ours, NamesOf(config.entity_path, type));
    if (!theirs.has_value() || !ours.has_value()) return std::nullopt;
    if (*theirs != *ours) moves.types.back() = MovesBetween(*theirs, *ours);
  }
  if (!config.dynamic_relations || !other->dynamic_relations) return moves;
  const absl::StatusOr<std::vector<std::string>> theirs = ReadRelationNames(*there);
  const absl::StatusOr<std::vector<std::string>> ours = ReadRelationNames(config.entity_path);
  if (!theirs.ok() || !ours.ok()) return std::nullopt;
  if (*theirs == *ours) return moves;
  for (const std::string& name : *ours) {
    const auto found = std::ranges::find(*theirs, name);
    moves.relations.push_back(found == theirs->end() ? -1 : found - theirs->begin());
  }
  return moves;
}

}  // namespace weft
