#include "services/trainer/local/local_start.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "graph/hdf5_file.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"
#include "services/lock_server/pass_sequence.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/model/model_spec.h"

namespace weft {
namespace {

uint64_t RandomBits() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

absl::Status DoesNotFit(const std::string& folder, const std::vector<std::string>& problems) {
  return absl::FailedPreconditionError(absl::StrCat(
      folder, ": holds another run; nothing was changed:\n  ", absl::StrJoin(problems, "\n  "),
      "\nSet these back, or choose another checkpoint_path."));
}

// The configuration that a checkpoint was written with; none when there is none to be read.
std::optional<RunConfig> ReadStoredConfig(const CheckpointDir& dir, const RunConfig& config,
                                          std::vector<std::string>* notes) {
  // Names that are not built in, in this program's configuration, may have been used there, too.
  ConfigOptions options;
  std::vector<std::string> overrides;
  if (config.compute == Compute::kReference) {
    options.extra_comparators = {config.comparator};
    options.extra_losses = {config.loss_fn};
    for (const RelationConfig& relation : config.relations) {
      options.extra_operators.push_back(relation.operator_name);
    }
    overrides.push_back("compute=reference");  // PBG's keys do not say so
  }
  for (const std::string& path : {dir.WeftConfigPath(), dir.ConfigPath()}) {
    const absl::StatusOr<std::string> json = ReadFile(path);
    if (absl::IsNotFound(json.status())) continue;
    absl::StatusOr<ConfigResult> result =
        json.ok() ? ParseRunConfig(*json, path, overrides, options) : json.status();
    if (result.ok()) return std::move(result->config);
    notes->push_back(absl::StrCat(path, " is of no use: ", std::string(result.status().message())));
  }
  return std::nullopt;
}

// The shapes of the tables in the files of a version: these are what they are, whatever a
// configuration says.
absl::Status CheckTables(const CheckpointDir& dir, int64_t version, const RunConfig& config,
                         const LocalData& data) {
  std::vector<std::string> problems;
  for (size_t t = 0; t < data.entity_counts.size(); ++t) {
    if (!IsTrained(config, static_cast<EntityTypeId>(t))) continue;
    const int dimension = config.EntityDimension(static_cast<EntityTypeId>(t));
    for (size_t i = 0; i < data.entity_counts[t].size(); ++i) {
      const std::string path =
          dir.EmbeddingsPath(config.entities[t].name, static_cast<int>(i), version);
      WEFT_ASSIGN_OR_RETURN(const EmbeddingsShape shape, ReadEmbeddingsShape(path));
      const int64_t count = data.entity_counts[t][i];
      if (shape.count == count && shape.dimension == dimension) continue;
      problems.push_back(absl::StrCat(path, ": is ", shape.count, " x ", shape.dimension,
                                      ", but configuration and entity counts want ", count, " x ",
                                      dimension));
    }
    // A partition beyond the last one: the run had more of them.
    const std::string beyond = dir.EmbeddingsPath(
        config.entities[t].name, static_cast<int>(data.entity_counts[t].size()), version);
    if (ReadEmbeddingsShape(beyond).ok()) {
      problems.push_back(absl::StrCat(beyond, ": is there, but the configuration has ",
                                      data.entity_counts[t].size(), " partitions"));
    }
  }
  return problems.empty() ? absl::OkStatus() : DoesNotFit(dir.path(), problems);
}

// The pass that made a version, as its model file tells; none when it does not.
std::optional<PassPosition> ReadPosition(const CheckpointDir& dir, int64_t version) {
  const absl::StatusOr<Hdf5Reader> file = Hdf5Reader::Open(dir.ModelPath(version));
  if (!file.ok()) return std::nullopt;
  const auto read = [&](const char* name, int* value) {
    const absl::StatusOr<int64_t> attribute =
        file->IntAttribute("/", absl::StrCat("iteration/", name));
    if (!attribute.ok() || *attribute < 0 || *attribute > INT32_MAX) return false;
    *value = static_cast<int>(*attribute);
    return true;
  };
  PassPosition position;
  position.pass = version - 1;
  const bool complete = read("epoch_idx", &position.epoch) &&
                        read("edge_path_idx", &position.edge_path) &&
                        read("edge_chunk_idx", &position.edge_chunk) &&
                        read("num_edge_chunks", &position.num_edge_chunks);
  if (!complete || position.edge_chunk >= position.num_edge_chunks) return std::nullopt;
  return position;
}

std::vector<std::string> PathsOf(const RunState& state) {
  std::vector<std::string> paths;
  for (const EdgePath& path : state.edge_paths) paths.push_back(path.path);
  return paths;
}

class Resolver {
 public:
  Resolver(const RunConfig& config, const LocalData& data, const CheckpointDir& dir,
           const std::optional<RunState>& stored)
      : config_(config), data_(data), dir_(dir), stored_(stored) {}

  absl::StatusOr<LocalStart> Run() {
    start_.plan = MakeRunPlan(config_, data_);
    const RunShape shape = MakeRunShape(config_, data_);

    // Against what the run was first, so that the messages speak of keys, not of files.
    std::vector<std::string> changes;
    if (HasTrained()) {
      changes = DescribeChanges(stored_->shape, shape);
    } else if (StoredConfig().has_value()) {
      changes = DescribeChanges(MakeRunShape(*StoredConfig(), {}), shape);
    }
    if (!changes.empty()) return DoesNotFit(dir_.path(), changes);

    WEFT_ASSIGN_OR_RETURN(const int64_t committed, CommittedVersion());
    if (committed > 0) WEFT_RETURN_IF_ERROR(CheckTables(dir_, committed, config_, data_));

    NoteFailure();
    if (HasTrained() && Continues(committed)) {
      start_.state = *stored_;
      WEFT_RETURN_IF_ERROR(CheckSeed());
      WEFT_RETURN_IF_ERROR(MoveTo(stored_->position, PathsOf(*stored_)));
      WEFT_RETURN_IF_ERROR(CheckPointer(committed));
    } else if (committed > 0) {
      WEFT_RETURN_IF_ERROR(Adopt(committed));
    } else {
      Begin();
      start_.is_new = true;
      start_.state.position.num_edge_chunks = NumEdgeChunks(std::nullopt);
    }
    start_.state.shape = shape;
    start_.state.edge_paths = MakeEdgePaths();
    return std::move(start_);
  }

 private:
  // Whether there is anything that a change of the configuration could spoil.
  bool HasTrained() const {
    return stored_.has_value() && (stored_->position.pass > 0 || !stored_->done.empty());
  }

  void NoteFailure() {
    if (!stored_.has_value() || !stored_->failure.has_value()) return;
    const TrainingFailure& failure = *stored_->failure;
    start_.notes.push_back(absl::StrCat("the run had failed in bucket (", failure.bucket.lhs, ", ",
                                        failure.bucket.rhs, "): ", failure.reason,
                                        "; it continues from what was trained before"));
  }

  // Where the version file is of no use, the run's own state knows better than the files: a newer
  // version may be whole, but is not committed before its statistics are there, too.
  absl::StatusOr<int64_t> CommittedVersion() {
    std::string warning;
    WEFT_ASSIGN_OR_RETURN(const int64_t newest, dir_.CommittedVersion(&warning));
    if (warning.empty()) return newest;
    const bool begun_only = stored_.has_value() && newest == stored_->position.pass + 1;
    const int64_t committed = begun_only ? stored_->position.pass : newest;
    start_.repairs_pointer = committed > 0;
    if (committed > 0) start_.notes.push_back(warning);
    return committed;
  }

  // Whether the run's own state is the newest there is, or can explain what is newer.
  bool Continues(int64_t committed) {
    if (committed <= stored_->position.pass + 1) return true;
    start_.notes.push_back(absl::StrCat(
        dir_.path(), ": version ", committed, " was made by another program after version ",
        stored_->position.pass, " of this run: continues from version ", committed));
    return false;
  }

  absl::Status CheckPointer(int64_t committed) {
    const int64_t known = stored_->position.pass;
    if (committed == known) return absl::OkStatus();
    if (committed == known + 1 && RunCoordinator::PassIsComplete(start_.plan, start_.state)) {
      start_.committed_meanwhile = committed;
      return absl::OkStatus();
    }
    if (committed > known) {
      // One version further, but not by this run: its state is of no more use.
      start_.notes.push_back(absl::StrCat(dir_.path(), ": version ", committed,
                                          " was made by another program: continues from it"));
      return Adopt(committed);
    }
    return absl::FailedPreconditionError(absl::StrCat(
        dir_.path(), ": the run has made version ", known, ", but checkpoint_version.txt says ",
        committed, "; put version ", known, " back, or remove ", dir_.path(),
        "/.weft to continue from version ", committed));
  }

  absl::Status CheckSeed() {
    if (!config_.seed.has_value() || *config_.seed == start_.state.seed) return absl::OkStatus();
    return DoesNotFit(dir_.path(),
                      {absl::StrCat("seed: was ", start_.state.seed, ", is ", *config_.seed)});
  }

  // The configuration that the checkpoint was written with.
  const std::optional<RunConfig>& StoredConfig() {
    if (!stored_config_was_read_) {
      stored_config_ = ReadStoredConfig(dir_, config_, &start_.notes);
      stored_config_was_read_ = true;
    }
    return stored_config_;
  }

  // A state that knows nothing yet.
  void Begin() {
    start_.state = RunState();
    start_.state.run_id = absl::StrFormat("%016x%016x", RandomBits(), RandomBits());
    start_.state.seed = config_.seed.has_value() ? *config_.seed
                        : stored_.has_value()    ? stored_->seed
                                                 : RandomBits();
    std::vector<int> num_partitions;
    for (const EntityConfig& type : config_.entities) num_partitions.push_back(type.num_partitions);
    start_.state.versions = VersionTable(num_partitions);
  }

  absl::Status Adopt(int64_t version) {
    WEFT_RETURN_IF_ERROR(CheckParameters(version));
    WEFT_RETURN_IF_ERROR(CheckEntities(version));
    Begin();
    start_.adopts = true;
    const std::optional<RunConfig>& stored_config = StoredConfig();
    if (stored_config.has_value() && stored_config->seed.has_value()) {
      start_.state.seed = *stored_config->seed;
      WEFT_RETURN_IF_ERROR(CheckSeed());
    }
    const std::vector<std::string> paths =
        stored_config.has_value() ? stored_config->edge_paths : config_.edge_paths;
    const int num_paths = static_cast<int>(paths.size());
    const std::optional<PassPosition> made = ReadPosition(dir_, version);
    if (made.has_value() && made->edge_path < num_paths) {
      return MoveTo(NextPass(*made, num_paths), paths);
    }
    return MoveTo(PositionOfVersion(version, num_paths, NumEdgeChunks(std::nullopt)), paths);
  }

  // That the model file has the parameters of this configuration. Operators that are not built in
  // are known to their own program only, which finds out when it reads the file.
  absl::Status CheckParameters(int64_t version) const {
    if (config_.compute == Compute::kReference) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const ModelSpec spec,
                          MakeModelSpec(config_, data_.num_dynamic_relations));
    ParameterSet parameters = MakeInitialParameters(spec);
    const absl::Status status = ReadModelFile(dir_.ModelPath(version), &parameters);
    if (!absl::IsFailedPrecondition(status)) return status;
    return DoesNotFit(dir_.path(), {std::string(status.message())});
  }

  // That its rows are those of the entities that are here, as far as both are known.
  absl::Status CheckEntities(int64_t version) const {
    WEFT_ASSIGN_OR_RETURN(const uint64_t digest, ReadEntitiesDigest(dir_.ModelPath(version)));
    if (digest == 0 || data_.entities_digest == 0 || digest == data_.entities_digest) {
      return absl::OkStatus();
    }
    return DoesNotFit(dir_.path(),
                      {"entities: imported anew, with other names or in another order"});
  }

  // Sets the position, mapped to this configuration's edge paths and chunks.
  absl::Status MoveTo(const PassPosition& position, const std::vector<std::string>& paths) {
    const bool begun = !start_.state.done.empty();
    absl::StatusOr<PassPosition> mapped =
        MapPosition(position, begun, paths, config_.edge_paths, NumEdgeChunks(position));
    if (!mapped.ok()) return Annotate(mapped.status(), dir_.path());
    start_.state.position = *mapped;
    // The data may have changed, but not under a pass.
    const auto index = static_cast<size_t>(position.edge_path);
    if (index >= start_.state.edge_paths.size() || index >= data_.edge_paths.size()) {
      return absl::OkStatus();
    }
    const bool same = start_.state.edge_paths[index].digest == data_.edge_paths[index].digest;
    if (!same && begun) {
      return DoesNotFit(dir_.path(), {absl::StrCat("edges in ", paths[index],
                                                   ": have changed in the middle of a pass")});
    }
    if (!same) {
      start_.notes.push_back(absl::StrCat("the edges in ", paths[index], " have changed"));
    }
    return absl::OkStatus();
  }

  // Without a number in the configuration: as many as needed, but no change within an epoch.
  int NumEdgeChunks(const std::optional<PassPosition>& position) const {
    if (config_.num_edge_chunks.has_value()) return *config_.num_edge_chunks;
    const bool within_epoch =
        position.has_value() &&
        (position->edge_path > 0 || position->edge_chunk > 0 || !start_.state.done.empty());
    return within_epoch ? position->num_edge_chunks
                        : data_.NumEdgeChunks(config_.max_edges_per_chunk);
  }

  std::vector<EdgePath> MakeEdgePaths() const {
    std::vector<EdgePath> paths;
    for (size_t i = 0; i < config_.edge_paths.size(); ++i) {
      paths.push_back({config_.edge_paths[i], data_.edge_paths[i].digest});
    }
    return paths;
  }

  const RunConfig& config_;
  const LocalData& data_;
  const CheckpointDir& dir_;
  const std::optional<RunState>& stored_;
  std::optional<RunConfig> stored_config_;
  bool stored_config_was_read_ = false;
  LocalStart start_;
};

}  // namespace

absl::StatusOr<LocalStart> ResolveStart(const RunConfig& config, const LocalData& data,
                                        const CheckpointDir& dir,
                                        const std::optional<RunState>& stored) {
  return Resolver(config, data, dir, stored).Run();
}

RunShape MakeRunShape(const RunConfig& config, const LocalData& data) {
  RunShape shape;
  for (size_t t = 0; t < config.entities.size(); ++t) {
    RunShape::EntityType& type = shape.entity_types.emplace_back();
    type.name = config.entities[t].name;
    type.dimension = config.EntityDimension(static_cast<EntityTypeId>(t));
    type.num_partitions = config.entities[t].num_partitions;
    if (t < data.entity_counts.size()) type.counts = data.entity_counts[t];
  }
  for (const RelationConfig& relation : config.relations) {
    shape.relations.push_back(
        {relation.name, config.entities[static_cast<size_t>(relation.lhs)].name,
         config.entities[static_cast<size_t>(relation.rhs)].name, relation.operator_name});
  }
  shape.dynamic_relations = config.dynamic_relations;
  shape.num_dynamic_relations = data.num_dynamic_relations;
  shape.global_embeddings = config.global_emb;
  shape.entities_digest = data.entities_digest;
  return shape;
}

namespace {

// About how fast this configuration trains, from the arithmetic of an edge: six floating-point
// operations a candidate and coordinate and side, and a fixed part.
double ExpectedEdgesPerSecond(const RunConfig& config) {
  constexpr double kOperationsPerSecond = 40e9;  // of a thread
  constexpr double kFixedSeconds = 0.5e-6;
  const double sides = (config.disable_lhs_negs ? 0 : 1) + (config.disable_rhs_negs ? 0 : 1);
  const double operations =
      6 * sides * config.dimension * (config.num_batch_negs + config.num_uniform_negs);
  return config.NumThreads() / (operations / kOperationsPerSecond + kFixedSeconds);
}

}  // namespace

RunPlan MakeRunPlan(const RunConfig& config, const LocalData& data) {
  RunPlan plan;
  plan.num_lhs = config.NumPartitions(Side::kLhs);
  plan.num_rhs = config.NumPartitions(Side::kRhs);
  for (size_t t = 0; t < config.entities.size(); ++t) {
    const auto id = static_cast<EntityTypeId>(t);
    const std::vector<int64_t>& counts = data.entity_counts[t];
    if (counts.size() == 1) continue;
    const int64_t entities = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const auto row = static_cast<int64_t>(sizeof(float)) * (config.EntityDimension(id) + 1);
    plan.partitioned_types.push_back({id, config.UsesEntityType(id, Side::kLhs),
                                      config.UsesEntityType(id, Side::kRhs),
                                      entities / static_cast<int64_t>(counts.size()) * row});
  }
  plan.bucket_order = config.bucket_order;
  plan.resident_partitions = config.resident_partitions;
  plan.commit_seconds = config.commit_seconds;
  plan.edges_per_second = ExpectedEdgesPerSecond(config);
  plan.num_epochs = config.num_epochs;
  for (const LocalData::EdgePath& path : data.edge_paths) {
    plan.bucket_edges.push_back(path.bucket_edges);
  }
  plan.early_stopping = config.early_stopping;
  plan.preservation_interval = config.checkpoint_preservation_interval;
  return plan;
}

}  // namespace weft
