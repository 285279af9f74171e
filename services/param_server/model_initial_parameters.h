// ModelInitialParameters draws what a run begins with from its configuration: the same values as
// training on one machine, on whatever servers they lie.
//
// Thread-safety: not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/run_config.h"
#include "services/param_server/param_orders.h"

namespace weft {

class ModelInitialParameters : public InitialParameters {
 public:
  struct Run {
    RunConfig config;
    uint64_t seed = 0;
    std::vector<std::vector<int64_t>> entity_counts;  // [entity type][partition]
    int64_t num_dynamic_relations = 0;
  };

  explicit ModelInitialParameters(Run run) : run_(std::move(run)) {}

  // Errors: InvalidArgument for a model that cannot be (see MakeModelSpec). Custom operators have
  // no parameters here: trainers that have are turned away when they join.
  absl::StatusOr<SharedLayout> Layout() override;
  absl::Status Fill(RowTable* table) override;

 private:
  absl::StatusOr<ParameterSet> Parameters() const;

  const Run run_;
};

}  // namespace weft
