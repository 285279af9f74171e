// ClusterPlan says what each role of a run needs: `weft plan`.
//
// A trainer's figures are those that training itself goes by (memory_plan.h). Those of the servers
// follow from what they must keep: partition servers the current versions and those of the newest
// manifest, which differ at the end of a pass, and what trainers are storing; parameter servers
// their rows and a snapshot of them, once more as bytes while it is stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/run_config.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/memory_plan.h"

namespace weft::cli {

struct PlanOptions {
  int trainers = 0;  // 0: one process, `weft train`
  int partition_servers = 2;
  int param_servers = 1;
  bool memory_store = false;
  std::optional<int64_t> memory;  // that each process may take, bytes
};

struct RolePlan {
  std::string role;  // "trainer"
  int count = 1;
  int64_t memory_bytes = 0;  // of each
  int64_t disk_bytes = 0;    // of each
  std::vector<MemoryPlan::Part> parts;
  std::vector<std::string> notes;  // what it does without, and what its memory is for; for people
  int threads = 0;                 // that train; 0: this role does not
};

struct ClusterPlan {
  std::vector<RolePlan> roles;
  int64_t model_bytes = 0;  // all tables and parameters, with optimizer state
};

// Errors: ResourceExhausted when a role needs more than `options.memory` (the message has the role,
// both figures and what would fit); InvalidArgument of the model.
absl::StatusOr<ClusterPlan> MakeClusterPlan(const RunConfig& config, const LocalData& data,
                                            const PlanOptions& options);

// Data that is not imported yet.
struct ExpectedData {
  std::vector<int64_t> entities;  // by entity type id
  int64_t edges = 0;
  double features_per_edge = 0;  // of the entities of both its sides
  int64_t num_dynamic_relations = 0;
};

// The same, spread evenly.
LocalData EvenData(const RunConfig& config, const ExpectedData& expected);

}  // namespace weft::cli
