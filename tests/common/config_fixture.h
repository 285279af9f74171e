// A small right configuration, to be changed in one place by each test.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/run_config.h"

namespace weft {

inline constexpr char kSmallConfig[] = R"({
  "entities": {"user": {"num_partitions": 1}, "item": {"num_partitions": 1}},
  "relations": [
    {"name": "follows", "lhs": "user", "rhs": "user"},
    {"name": "buys", "lhs": "user", "rhs": "item"}
  ],
  "dimension": 8,
  "entity_path": "data",
  "edge_paths": ["data/edges"],
  "checkpoint_path": "model"
})";

inline absl::StatusOr<ConfigResult> ParseSmall(const std::vector<std::string>& overrides,
                                               const ConfigOptions& options = {}) {
  return ParseRunConfig(kSmallConfig, "run.json", overrides, options);
}

// What is said about the small configuration with these overrides; empty when it is right.
inline std::string ProblemsWith(const std::vector<std::string>& overrides) {
  return std::string(ParseSmall(overrides).status().message());
}

}  // namespace weft
