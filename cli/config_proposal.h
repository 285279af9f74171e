// ConfigProposal is a run configuration for data that somebody has only just got, with the reason
// for every choice.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/data_sketch.h"

namespace weft::cli {

struct ProposalOptions {
  // Entity types and their partitions: one for both sides, or two, left-hand side first. Empty: one
  // or two by what the data shows.
  std::vector<std::pair<std::string, int>> entities;
  std::string folder;        // where the data and the model will lie
  int64_t num_edges = 0;     // of all data, estimated or counted
  bool whole = false;        // the sketch saw all of it
  int64_t memory_bytes = 0;  // of the machine; 0: unknown
};

struct ConfigProposal {
  std::string json;  // PBG's keys only, those that are chosen
  std::vector<std::string> reasons;
};

// Errors: InvalidArgument without edges, or for options that give no valid configuration.
absl::StatusOr<ConfigProposal> ProposeConfig(const DataSketch& sketch,
                                             const ProposalOptions& options);

// The arguments of `weft import` for such data: "--lhs-col 0 --rel-col 1 --rhs-col 2
// --skip-header".
std::string ImportArguments(const DataSketch& sketch);

}  // namespace weft::cli
