// Checkpoint is a trained model as the commands that read one see it: eval, export, neighbors,
// score.
//
// It is named by its folder (which holds the configuration it was trained with), by an epoch_N
// folder in it, or by a run configuration (whose checkpoint_path it is). Opening it reads little;
// tables are read when they are asked for. A training that goes on meanwhile keeps the version
// until the object goes.
//
// Thread-safety: constant after Open; methods may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/checkpoint/version_pin.h"
#include "services/common/float_block.h"
#include "services/common/parameter_set.h"
#include "services/common/run_config.h"
#include "services/common/types.h"
#include "services/trainer/model/model_spec.h"

namespace weft::cli {

class Checkpoint {
 public:
  struct Options {
    std::string path;                    // checkpoint folder or run configuration
    std::vector<std::string> overrides;  // "key=value", as of --set
    // Where names and counts are; empty: the configuration's entity_path. A relative one that is
    // not below the working directory is looked for where the run's was.
    std::string entity_path;
  };

  // Errors:
  //   NotFound, InvalidArgument: no such folder or file, no configuration in it, or a bad one.
  //   FailedPrecondition: nothing was committed yet; entity counts or names differ from those in
  //     entity_path (the data were imported anew).
  //   DataLoss: files of the committed version are missing or damaged.
  static absl::StatusOr<Checkpoint> Open(const Options& options);

  // entity_path and checkpoint_path are the ones that are read.
  const RunConfig& config() const { return config_; }
  const ModelSpec& spec() const { return spec_; }
  int64_t version() const { return version_; }
  // Of the configuration, and about the version taken.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // [type][partition]
  const std::vector<std::vector<int64_t>>& entity_counts() const { return entity_counts_; }

  // The vectors of one partition as they are stored. Errors: DataLoss (damaged, or a value that is
  // not finite: the message names entity type, partition, row).
  absl::StatusOr<FloatBlock> ReadEmbeddings(PartitionKey key) const;
  // The same in pieces of at most 16 MiB: calls `visit(first row, rows)` in order until it fails.
  absl::Status VisitEmbeddings(
      PartitionKey key,
      const std::function<absl::Status(int64_t first, std::span<const float> rows)>& visit) const;
  // One row. Errors as above.
  absl::StatusOr<std::vector<float>> ReadEmbedding(PartitionKey key, EntityOffset offset) const;

  // The shared parameters, without optimizer state. Errors as ReadEmbeddings; FailedPrecondition
  // when they are not those of the configuration. A custom operator's parameters are taken as the
  // file has them.
  absl::StatusOr<ParameterSet> ReadParameters() const;

  // Errors: NotFound (the message says where names come from), DataLoss, FailedPrecondition (as
  // many names as entities are wanted).
  absl::StatusOr<std::vector<std::string>> EntityNames(PartitionKey key) const;
  // By relation id. Static relations: the configuration's.
  absl::StatusOr<std::vector<std::string>> RelationNames() const;

  // Index into config().entities. Errors: NotFound, listing the types.
  absl::StatusOr<EntityTypeId> FindEntityType(const std::string& name) const;

 private:
  Checkpoint() = default;

  absl::Status FindVersion();
  absl::Status CountEntities();
  absl::Status CheckNames() const;
  std::string EmbeddingsPath(PartitionKey key) const;
  absl::Status CheckFinite(PartitionKey key, int64_t first, std::span<const float> rows) const;

  RunConfig config_;
  ModelSpec spec_;
  int64_t version_ = 0;
  std::optional<VersionPin> pin_;
  std::vector<std::string> warnings_;
  std::vector<std::vector<int64_t>> entity_counts_;
};

}  // namespace weft::cli
