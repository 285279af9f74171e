// What init_path's entities and dynamic relations are called, for a run whose own are others or in
// another order or partition: which row goes where.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/run_config.h"

namespace weft {

struct InitMoves {
  // A row of a table there, and where it goes here.
  struct Move {
    int from_partition = 0;
    int64_t from = 0;
    int64_t to = 0;
  };
  struct EntityType {
    int num_partitions = 0;                // there
    std::vector<std::vector<Move>> moves;  // [partition here], by from_partition
    int64_t found = 0;
    int64_t missing = 0;  // that only this run has
  };

  std::vector<std::optional<EntityType>> types;  // none: the names are the same, in the same order
  // Of dynamic relations, the id there or -1; empty when they are the same.
  std::vector<int64_t> relations;

  bool empty() const;
};

// `entities_digest`: of the model file of the checkpoint, 0 when it has none.
// Nothing when the names of one of the runs are not known. Errors: DataLoss for files of names that
// are damaged.
absl::StatusOr<std::optional<InitMoves>> FindInitMoves(const RunConfig& config,
                                                       uint64_t entities_digest);

}  // namespace weft
