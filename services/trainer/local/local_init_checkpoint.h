// LocalInitCheckpoint is the checkpoint that `init_path` names: a new run takes its embeddings and
// parameters from there, by the same names and partitions, with sums of its own.
//
// Where its entities or dynamic relations are others, or in another order or in other partitions,
// and both runs' names are there, rows are taken by name.
//
// What the other checkpoint does not have starts as in any new run, and is named in `missing`. A
// folder without a committed version may be one made by hand, as PBG takes it: files of version 0,
// of some entity types, with or without parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/checkpoint/version_pin.h"
#include "services/common/embedding_partition.h"
#include "services/common/run_config.h"
#include "services/common/types.h"
#include "services/param_server/param_client.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/local/local_init_names.h"

namespace weft {

class LocalInitCheckpoint {
 public:
  // Looks at everything that will be read later.
  // Errors: NotFound when `config.init_path` has no version; FailedPrecondition when a
  // table there has another shape or other partitions (all are named), or entities in another order
  // whose names are not known; DataLoss.
  static absl::StatusOr<LocalInitCheckpoint> Open(const RunConfig& config, const LocalData& data);

  bool Has(EntityTypeId type) const { return has_[static_cast<size_t>(type)]; }
  const std::vector<std::string>& missing() const { return missing_; }

  // Fills `partition`, which has the partition's shape; sums 0. Rows of entities that the
  // checkpoint does not have stay as they are.
  absl::Status ReadPartition(PartitionKey key, EmbeddingPartition* partition) const;
  // Overwrites the parameters and the tables of unpartitioned types that the checkpoint has.
  // Errors: FailedPrecondition when a parameter has another shape.
  absl::Status ReadShared(SharedState* live) const;

 private:
  LocalInitCheckpoint(const RunConfig& config, int64_t version);

  std::string EmbeddingsPath(EntityTypeId type, int partition) const;
  bool ByName(EntityTypeId type) const;
  // Looks at the tables of a type, of `counts` entities (-1: any number). What does not fit is
  // added to `problems`.
  absl::Status CheckTables(EntityTypeId type, const std::vector<int64_t>& counts, int dimension,
                           std::vector<std::string>* problems);
  absl::Status ReadByName(PartitionKey key, EmbeddingPartition* partition) const;
  absl::Status CopyParameter(const Parameter& from, Parameter* to) const;

  std::string folder_;
  int64_t version_ = 0;
  std::shared_ptr<VersionPin> pin_;  // of the version; another training may go on with it
  InitMoves moves_;
  std::vector<std::string> type_names_;
  std::vector<bool> has_;
  std::vector<std::string> missing_;
};

}  // namespace weft
