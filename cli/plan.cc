// weft plan: what a run will need, before anything is started.
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/cluster_plan.h"
#include "cli/commands.h"
#include "cli/config_options.h"
#include "cli/edge_upload.h"
#include "cli/epoch_estimate.h"
#include "cli/progress.h"
#include "cli/reference_hook.h"
#include "cli/report_file.h"
#include "services/common/run_config.h"
#include "services/common/status_macros.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/local/local_start.h"

namespace weft::cli {
namespace {

struct Flags {
  std::string config;
  std::vector<std::string> overrides;
  PlanOptions plan;
  std::string store = "rocksdb";
  int64_t memory = 0;
  std::vector<std::string> entities;
  int64_t edges = 0;
  int64_t relations = 0;
  double features_per_edge = -1;
  double edges_per_second = 0;
  std::string json;
};

// What was imported, or what the flags say about what will be.
absl::StatusOr<LocalData> FindData(const Flags& flags, const RunConfig& config) {
  if (flags.entities.empty() && flags.edges == 0) {
    absl::StatusOr<LocalData> data = ReadLocalData(WithLocalEdges(config));
    if (!absl::IsNotFound(data.status())) return data;
    return absl::NotFoundError(absl::StrCat(
        std::string(data.status().message()),
        "; import the data first, or say what it will be: --entities TYPE=N --edges N"));
  }
  ExpectedData expected = {.entities = std::vector<int64_t>(config.entities.size(), -1),
                           .edges = flags.edges,
                           .features_per_edge = std::max(0.0, flags.features_per_edge),
                           .num_dynamic_relations = flags.relations};
  for (const std::string& text : flags.entities) {
    const size_t equals = text.rfind('=');
    const std::string name = text.substr(0, equals);
    const auto type = std::ranges::find(config.entities, name, &EntityConfig::name);
    int64_t count = 0;
    if (equals == std::string::npos || !absl::SimpleAtoi(text.substr(equals + 1), &count) ||
        count < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--entities ", text, ": not of the form TYPE=N"));
    }
    if (type == config.entities.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--entities ", text, ": the configuration has no entity type ", name));
    }
    expected.entities[static_cast<size_t>(type - config.entities.begin())] = count;
  }
  std::vector<std::string> missing;
  for (size_t t = 0; t < config.entities.size(); ++t) {
    if (expected.entities[t] >= 0) continue;
    missing.push_back(absl::StrCat("--entities ", config.entities[t].name, "=N"));
  }
  if (flags.edges == 0) missing.push_back("--edges N");
  if (config.dynamic_relations && flags.relations == 0) missing.push_back("--relations N");
  if (std::ranges::any_of(config.entities, &EntityConfig::featurized) &&
      flags.features_per_edge < 0) {
    missing.push_back("--features-per-edge N");
  }
  if (!missing.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("missing: ", absl::StrJoin(missing, " "), " (0 is a number, too)"));
  }
  return EvenData(config, expected);
}

int64_t EdgesOf(const LocalData& data) {
  int64_t edges = 0;
  for (const LocalData::EdgePath& path : data.edge_paths) {
    for (const int64_t in_bucket : path.bucket_edges) edges += in_bucket;
  }
  return edges;
}

std::string Size(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

struct EpochTime {
  double edges_per_second = 0;  // of one trainer
  bool measured = false;
  std::optional<double> seconds;
};

void PrintRoles(const ClusterPlan& plan) {
  for (const RolePlan& role : plan.roles) {
    std::cout << (role.count == 1 ? role.role
                                  : absl::StrCat("each ", role.role, " (of ", role.count, ")"))
              << ": " << Size(role.memory_bytes) << " of memory";
    if (role.disk_bytes > 0) std::cout << ", " << Size(role.disk_bytes) << " of disk";
    for (const std::string& note : role.notes) std::cout << "; " << note;
    std::cout << "\n";
    for (const MemoryPlan::Part& part : role.parts) {
      std::cout << absl::StrFormat("  %10s  %s\n", Size(part.bytes), part.what);
    }
  }
}

void PrintEpoch(const std::optional<EpochEstimate>& epoch, const EpochTime& time, int trainers) {
  if (!epoch.has_value()) {
    std::cout << "an epoch: too many buckets to go through them here\n";
    return;
  }
  std::cout << "an epoch: " << FormatCount(epoch->edges) << " edges in "
            << FormatCount(epoch->grants) << " turns; partitions move: " << Size(epoch->read_bytes)
            << " read, " << Size(epoch->stored_bytes) << " stored\n";
  if (trainers > 1) {
    std::cout << absl::StrFormat(
        "  buckets that share no partition keep %.1f of %d trainers busy\n", epoch->busy_trainers,
        trainers);
  }
  if (!time.seconds.has_value()) return;
  std::cout << "  takes " << FormatElapsed(absl::Seconds(*time.seconds)) << " at "
            << FormatRate(time.edges_per_second) << " edges/s" << (trainers > 1 ? " a trainer" : "")
            << (time.measured ? ", transfers not counted\n"
                              : ", what such a configuration may reach; measure yours, and give it "
                                "with --edges-per-second\n");
}

nlohmann::ordered_json ToJson(const LocalData& data, const RunConfig& config,
                              const ClusterPlan& plan, const std::optional<EpochEstimate>& epoch,
                              const EpochTime& time) {
  nlohmann::ordered_json json;
  json["edges"] = EdgesOf(data);
  json["partitions"] = {config.NumPartitions(Side::kLhs), config.NumPartitions(Side::kRhs)};
  json["model_bytes"] = plan.model_bytes;
  json["roles"] = nlohmann::ordered_json::array();
  for (const RolePlan& role : plan.roles) {
    nlohmann::ordered_json parts = nlohmann::ordered_json::object();
    for (const MemoryPlan::Part& part : role.parts) parts[part.what] = part.bytes;
    json["roles"].push_back({{"role", role.role},
                             {"count", role.count},
                             {"memory_bytes", role.memory_bytes},
                             {"disk_bytes", role.disk_bytes},
                             {"parts", std::move(parts)}});
    if (role.threads > 0) json["roles"].back()["threads"] = role.threads;
  }
  if (!epoch.has_value()) return json;
  json["epoch"] = {{"turns", epoch->grants},
                   {"read_bytes", epoch->read_bytes},
                   {"stored_bytes", epoch->stored_bytes},
                   {"busy_trainers", epoch->busy_trainers},
                   {"edges_per_second", time.edges_per_second},
                   {"seconds", time.seconds.value_or(0)}};
  return json;
}

absl::Status Plan(const Flags& flags, const RunConfig& config) {
  WEFT_ASSIGN_OR_RETURN(const LocalData data, FindData(flags, config));
  PlanOptions options = flags.plan;
  options.memory_store = flags.store == "memory";
  if (flags.memory > 0) options.memory = flags.memory;
  WEFT_ASSIGN_OR_RETURN(const ClusterPlan plan, MakeClusterPlan(config, data, options));
  const int trainers = std::max(1, options.trainers);
  EpochTime time;
  time.measured = flags.edges_per_second > 0;
  time.edges_per_second = time.measured ? flags.edges_per_second
                                        : MakeRunPlan(config, data).edges_per_second.value_or(0);
  WEFT_ASSIGN_OR_RETURN(const std::optional<EpochEstimate> epoch,
                        EstimateEpoch(config, data, trainers, time.edges_per_second));
  if (epoch.has_value() && time.edges_per_second > 0) {
    time.seconds = static_cast<double>(epoch->edges) /
                   (time.edges_per_second * std::max(epoch->busy_trainers, 1e-9));
  }
  std::cout << "model: " << Size(plan.model_bytes) << " with optimizer state, "
            << config.NumPartitions(Side::kLhs) << " x " << config.NumPartitions(Side::kRhs)
            << " partitions; " << FormatCount(EdgesOf(data)) << " edges, the largest bucket has "
            << FormatCount(data.LargestBucket()) << "\n";
  PrintRoles(plan);
  PrintEpoch(epoch, time, trainers);
  if (flags.json.empty()) return absl::OkStatus();
  return WriteReport(flags.json, ToJson(data, config, plan, epoch, time).dump(2) + "\n");
}

int RunPlanCommand(const Flags& flags) {
  const absl::StatusOr<ConfigResult> config =
      LoadRunConfig(flags.config, flags.overrides, ProgramConfigOptions());
  if (!config.ok()) return Fail("plan", config.status(), /*usage=*/true);
  const absl::Status status = Plan(flags, config->config);
  return status.ok() ? 0 : Fail("plan", status, absl::IsInvalidArgument(status));
}

}  // namespace

void AddPlanCommand(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand(
      "plan", "What a run needs: memory by role, what moves, how long an epoch takes");
  const auto flags = std::make_shared<Flags>();
  command->add_option("CONFIG", flags->config, "The configuration, JSON")->required();
  command
      ->add_option("--trainers", flags->plan.trainers,
                   "Of a cluster with so many (default: weft train on one machine)")
      ->check(CLI::Range(1, 10'000))
      ->default_str("");
  command->add_option("--partition-servers", flags->plan.partition_servers, "How many")
      ->check(CLI::Range(1, 10'000));
  command->add_option("--param-servers", flags->plan.param_servers, "How many")
      ->check(CLI::Range(0, 1'024));
  command->add_option("--store", flags->store, "What partition servers keep versions in")
      ->check(CLI::IsMember({"rocksdb", "memory"}));
  command
      ->add_option("--memory", flags->memory,
                   "What each process may take: what needs more is refused, with what would fit")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE")
      ->default_str("");
  command
      ->add_option("--entities", flags->entities,
                   "Before the import: how many of a type there will be, in all")
      ->type_name("TYPE=N")
      ->expected(1)
      ->take_all();
  command->add_option("--edges", flags->edges, "Before the import: edges of all edge_paths")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  command->add_option("--relations", flags->relations, "Before the import: dynamic relations")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  command
      ->add_option("--features-per-edge", flags->features_per_edge,
                   "Before the import: features that the entities of an edge have, on average; of "
                   "a featurized type, --entities counts features")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber)
      ->default_str("");
  command
      ->add_option("--edges-per-second", flags->edges_per_second,
                   "Of one trainer, as measured (default: what its arithmetic lets expect)")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  AddOverrides(*command, &flags->overrides, "Override a key: lr=0.1, num_epochs=30");
  AddReportOption(*command, &flags->json, "Write the plan as JSON to this file");
  command->footer(
      "Example:\n"
      "  weft plan run.json --trainers 4 --memory 16G --entities user=50000000 --edges "
      "1000000000\n");
  command->callback([flags, action] { *action = [flags] { return RunPlanCommand(*flags); }; });
}

}  // namespace weft::cli
