// How the state of a cluster's run is shown.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "weft/v1/lock_service.pb.h"

namespace weft::cli {

// "running", "paused", ...
std::string PhaseName(v1::RunPhase phase);

// What changes from one look to the next, for rates.
struct RunPace {
  double edges_per_second = 0;
  std::optional<absl::Duration> left;  // until the last epoch ends
};

// Edges trained in all passes so far, by what the state says.
int64_t EdgesDone(const v1::GetRunStateResponse& state);
RunPace Pace(const v1::GetRunStateResponse& before, const v1::GetRunStateResponse& now,
             absl::Duration between);

// For people, many lines: progress, bucket matrix, trainers, servers, versions.
std::string FormatRunStatus(const v1::GetRunStateResponse& state,
                            const std::optional<RunPace>& pace);
std::string FormatManifests(const v1::GetRunStateResponse& state);
// For machines.
std::string RunStatusToJson(const v1::GetRunStateResponse& state);

}  // namespace weft::cli
