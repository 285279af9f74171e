#include "cli/run_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/progress.h"

namespace weft::cli {
namespace {

// Larger matrices are counted, not drawn.
constexpr int kMaxDrawnSide = 64;

char BucketMark(char state) {
  switch (static_cast<v1::BucketState>(state)) {
    case v1::BUCKET_STATE_DONE:
      return '#';
    case v1::BUCKET_STATE_GRANTED:
      return '*';
    default:
      return '.';
  }
}

std::string BucketName(const v1::Bucket& bucket) {
  return absl::StrCat("(", bucket.lhs(), ", ", bucket.rhs(), ")");
}

std::string Buckets(const v1::TrainerInfo& trainer) {
  std::vector<std::string> names;
  for (const v1::Bucket& bucket : trainer.buckets()) names.push_back(BucketName(bucket));
  return names.empty() ? "waits" : absl::StrJoin(names, " ");
}

bool IsSilent(const v1::GetRunStateResponse& state, uint64_t store_id) {
  return std::ranges::find(state.silent_servers(), store_id) != state.silent_servers().end();
}

void AppendMatrix(const v1::GetRunStateResponse& state, std::string* out) {
  const int lhs = state.num_lhs();
  const int rhs = state.num_rhs();
  const std::string& states = state.bucket_states();
  if (lhs > kMaxDrawnSide || rhs > kMaxDrawnSide || states.empty() ||
      states.size() != static_cast<size_t>(lhs) * static_cast<size_t>(rhs)) {
    return;
  }
  absl::StrAppend(out, "buckets (# done, * in training, . to do)\n");
  for (int row = 0; row < lhs; ++row) {
    std::string line = "  ";
    for (int column = 0; column < rhs; ++column) {
      line += BucketMark(states[static_cast<size_t>(row * rhs + column)]);
      line += ' ';
    }
    line.pop_back();
    absl::StrAppend(out, line, "\n");
  }
}

std::string ManifestName(const v1::ManifestInfo& manifest) {
  return manifest.version() > 0 ? absl::StrCat("version ", manifest.version())
                                : std::string("within a pass");
}

std::vector<std::string> ManifestTraits(const v1::ManifestInfo& manifest) {
  std::vector<std::string> traits;
  traits.push_back(manifest.broken()      ? "broken"
                   : manifest.committed() ? "committed"
                                          : "being stored");
  if (manifest.preserved()) traits.push_back("preserved");
  if (manifest.best()) traits.push_back("best");
  if (manifest.pins() > 0) traits.push_back("in use");
  for (const auto& [name, value] : manifest.metrics()) {
    traits.push_back(absl::StrFormat("%s %.4g", name, value));
  }
  return traits;
}

nlohmann::ordered_json ServerToJson(const v1::GetRunStateResponse& state,
                                    const v1::ServerInfo& server) {
  return {{"address", server.address()},
          {"store_id", absl::StrFormat("%016x", server.store_id())},
          {"durable", server.durable()},
          {"silent", IsSilent(state, server.store_id())}};
}

}  // namespace

std::string PhaseName(v1::RunPhase phase) {
  switch (phase) {
    case v1::RUN_PHASE_PREPARING:
      return "preparing";
    case v1::RUN_PHASE_RUNNING:
      return "running";
    case v1::RUN_PHASE_CUTTING:
      return "cutting";
    case v1::RUN_PHASE_REWINDING:
      return "rewinding";
    case v1::RUN_PHASE_PAUSED:
      return "paused";
    case v1::RUN_PHASE_FAILED:
      return "failed";
    case v1::RUN_PHASE_DONE:
      return "done";
    default:
      return "unknown";
  }
}

int64_t EdgesDone(const v1::GetRunStateResponse& state) {
  // Passes of an epoch are not equally long; what this pass has is exact.
  const v1::PassPosition& position = state.position();
  return position.epoch() * state.epoch_edges() + state.edges_done();
}

RunPace Pace(const v1::GetRunStateResponse& before, const v1::GetRunStateResponse& now,
             absl::Duration between) {
  RunPace pace;
  const double seconds = absl::ToDoubleSeconds(between);
  if (seconds <= 0) return pace;
  pace.edges_per_second =
      std::max(0.0, static_cast<double>(EdgesDone(now) - EdgesDone(before)) / seconds);
  const auto all = static_cast<double>(now.num_epochs() * now.epoch_edges());
  if (pace.edges_per_second > 0) {
    pace.left = absl::Seconds((all - static_cast<double>(EdgesDone(now))) / pace.edges_per_second);
  }
  return pace;
}

std::string FormatManifests(const v1::GetRunStateResponse& state) {
  std::string out;
  for (const v1::ManifestInfo& manifest : state.manifests()) {
    absl::StrAppend(&out, "  ", ManifestName(manifest), ": ", manifest.position().epoch(),
                    " epochs, pass ", manifest.position().pass_id(), ", generation ",
                    manifest.generation(), ", ", absl::StrJoin(ManifestTraits(manifest), ", "),
                    "\n");
  }
  return out.empty() ? "  none yet\n" : out;
}

std::string FormatRunStatus(const v1::GetRunStateResponse& state,
                            const std::optional<RunPace>& pace) {
  std::string out = absl::StrCat("run ", state.context().run_id(), ": ", PhaseName(state.phase()));
  if (!state.reason().empty()) absl::StrAppend(&out, " (", state.reason(), ")");
  absl::StrAppend(&out, "\nepoch ", std::min(state.position().epoch() + 1, state.num_epochs()), "/",
                  state.num_epochs(), ", pass ", state.position().pass_id(), ": ",
                  FormatCount(state.buckets_done()), "/", FormatCount(state.buckets()),
                  " buckets, ", FormatCount(state.edges_done()), "/", FormatCount(state.edges()),
                  " edges");
  if (pace.has_value() && pace->edges_per_second > 0) {
    absl::StrAppend(&out, ", ", FormatRate(pace->edges_per_second), " edges/s");
    if (pace->left.has_value()) absl::StrAppend(&out, ", ", FormatElapsed(*pace->left), " left");
  }
  absl::StrAppend(&out, "\nterm ", state.context().term(), ", generation ",
                  state.context().generation(), "\n");
  AppendMatrix(state, &out);
  absl::StrAppend(&out, "trainers: ", state.trainers_size(), "\n");
  for (const v1::TrainerInfo& trainer : state.trainers()) {
    absl::StrAppend(&out, "  ", trainer.name(), ": ", Buckets(trainer), ", lease ",
                    absl::StrFormat("%.1f s", static_cast<double>(trainer.lease_left_ms()) / 1000),
                    "\n");
  }
  absl::StrAppend(&out, "servers:\n");
  for (const v1::ServerInfo& server : state.servers().partition_servers()) {
    absl::StrAppend(&out, "  partition server ", server.address(),
                    server.durable() ? "" : " (memory)",
                    IsSilent(state, server.store_id()) ? ", silent" : "", "\n");
  }
  for (const v1::ServerInfo& server : state.servers().param_servers()) {
    absl::StrAppend(&out, "  parameter server ", server.address(),
                    IsSilent(state, server.store_id()) ? ", silent" : "", "\n");
  }
  absl::StrAppend(&out, "versions:\n", FormatManifests(state));
  return out;
}

std::string RunStatusToJson(const v1::GetRunStateResponse& state) {
  nlohmann::ordered_json json;
  json["run_id"] = state.context().run_id();
  json["term"] = state.context().term();
  json["generation"] = state.context().generation();
  json["phase"] = PhaseName(state.phase());
  json["reason"] = state.reason();
  json["epoch"] = state.position().epoch();
  json["num_epochs"] = state.num_epochs();
  json["pass"] = state.position().pass_id();
  json["buckets"] = state.buckets();
  json["buckets_done"] = state.buckets_done();
  json["edges"] = state.edges();
  json["edges_done"] = state.edges_done();
  json["epoch_edges"] = state.epoch_edges();
  json["stopped_early"] = state.stopped_early();
  json["trainers"] = nlohmann::ordered_json::array();
  for (const v1::TrainerInfo& trainer : state.trainers()) {
    nlohmann::ordered_json buckets = nlohmann::ordered_json::array();
    for (const v1::Bucket& bucket : trainer.buckets()) {
      buckets.push_back({bucket.lhs(), bucket.rhs()});
    }
    json["trainers"].push_back(
        {{"name", trainer.name()},
         {"lease_left_seconds", static_cast<double>(trainer.lease_left_ms()) / 1000},
         {"progress", trainer.progress()},
         {"buckets", buckets}});
  }
  json["partition_servers"] = nlohmann::ordered_json::array();
  for (const v1::ServerInfo& server : state.servers().partition_servers()) {
    json["partition_servers"].push_back(ServerToJson(state, server));
  }
  json["param_servers"] = nlohmann::ordered_json::array();
  for (const v1::ServerInfo& server : state.servers().param_servers()) {
    json["param_servers"].push_back(ServerToJson(state, server));
  }
  json["versions"] = nlohmann::ordered_json::array();
  for (const v1::ManifestInfo& manifest : state.manifests()) {
    nlohmann::ordered_json entry = {{"version", manifest.version()},
                                    {"generation", manifest.generation()},
                                    {"epoch", manifest.position().epoch()},
                                    {"pass", manifest.position().pass_id()},
                                    {"committed", manifest.committed()},
                                    {"preserved", manifest.preserved()},
                                    {"best", manifest.best()},
                                    {"broken", manifest.broken()}};
    entry["metrics"] = nlohmann::ordered_json::object();
    for (const auto& [name, value] : manifest.metrics()) entry["metrics"][name] = value;
    json["versions"].push_back(std::move(entry));
  }
  json["bucket_states"] = nlohmann::ordered_json::array();
  const auto columns = static_cast<size_t>(std::max(state.num_rhs(), 1));
  for (size_t begin = 0; begin + columns <= state.bucket_states().size(); begin += columns) {
    std::string row;
    for (const char mark : state.bucket_states().substr(begin, columns)) row += BucketMark(mark);
    json["bucket_states"].push_back(row);
  }
  return json.dump(2) + "\n";
}

}  // namespace weft::cli
