// weft neighbors: the entities whose vectors are nearest to one entity's.
#include <CLI/App.hpp>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/best_entities.h"
#include "cli/checkpoint_loader.h"
#include "cli/checkpoint_options.h"
#include "cli/commands.h"
#include "cli/entity_names.h"
#include "cli/progress.h"
#include "cli/report_file.h"
#include "services/common/status_macros.h"
#include "services/trainer/fused/row_transform.h"
#include "services/trainer/model/model_parameters.h"

namespace weft::cli {
namespace {

struct NeighborsOptions {
  Checkpoint::Options checkpoint;
  std::string entity;
  std::string type;
  int count = 10;
  std::string metric = "cos";
  std::string json_path;
};

struct Found {
  EntityTypeId type = 0;
  EntityPosition position;
};

// The entity in the type that was asked for, else in the only type that has it.
absl::StatusOr<Found> FindInTypes(const Checkpoint& checkpoint, const NeighborsOptions& options,
                                  std::vector<EntityNames>& names) {
  if (!options.type.empty()) {
    WEFT_ASSIGN_OR_RETURN(const EntityTypeId type, checkpoint.FindEntityType(options.type));
    WEFT_ASSIGN_OR_RETURN(const EntityPosition position,
                          FindEntity(names[static_cast<size_t>(type)], options.entity));
    return Found{type, position};
  }
  std::vector<Found> found;
  std::vector<std::string> types;
  for (size_t t = 0; t < names.size(); ++t) {
    WEFT_ASSIGN_OR_RETURN(const std::optional<EntityPosition> position,
                          names[t].Find(options.entity));
    if (!position.has_value()) continue;
    found.push_back({static_cast<EntityTypeId>(t), *position});
    types.push_back(names[t].type().name);
  }
  if (found.size() == 1) return found[0];
  if (found.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", options.entity, "\" is an entity of several types (",
                     absl::StrJoin(types, ", "), "); say which with --type"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> closest,
                        ClosestNames(absl::MakeSpan(names), options.entity, 5));
  return absl::NotFoundError(
      absl::StrCat("there is no entity \"", options.entity, "\"", ClosestText(closest)));
}

// The model without relations: entities of `type` compared with each other. The cosine is taken of
// what the comparator compares: the vectors with their global embedding, without the bias.
ModelSpec ComparisonSpec(ModelSpec spec, EntityTypeId type, bool cosine) {
  spec.num_dynamic_relations = 0;
  spec.relations = {RelationSpec{.name = "", .lhs = type, .rhs = type}};
  if (cosine) {
    spec.comparator = Comparator::kDot;
    spec.bias = false;
  }
  return spec;
}

void NormalizeRows(int64_t rows, int64_t dimension, bool has_bias, float* vectors) {
  for (int64_t i = 0; i < rows; ++i) {
    float* row = vectors + i * dimension;
    if (has_bias) row[0] = 0;
    double square = 0;
    for (int64_t k = 0; k < dimension; ++k) square += double{row[k]} * double{row[k]};
    // In double: of a vector of denormal numbers, the factor is no float.
    const double scale = square > 0 ? 1 / std::sqrt(square) : 0;
    for (int64_t k = 0; k < dimension; ++k) row[k] = static_cast<float>(row[k] * scale);
  }
}

absl::StatusOr<std::vector<ScoredEntity>> FindNeighbors(const Checkpoint& checkpoint,
                                                        const NeighborsOptions& options,
                                                        const Found& found) {
  const bool cosine = options.metric == "cos";
  const ModelSpec spec = ComparisonSpec(checkpoint.spec(), found.type, cosine);
  WEFT_ASSIGN_OR_RETURN(const ParameterSet parameters, checkpoint.ReadParameters());
  WEFT_ASSIGN_OR_RETURN(const RowTransform transform,
                        RowTransform::Make(spec, parameters, 0, Side::kRhs, RowRole::kCandidate));
  const int64_t dimension = transform.dimension();
  const bool has_bias = checkpoint.spec().bias;
  const auto prepare = [&](int64_t rows, float* vectors) {
    transform.Apply(rows, vectors, dimension, vectors, dimension);
    if (cosine) NormalizeRows(rows, dimension, has_bias, vectors);
  };
  WEFT_ASSIGN_OR_RETURN(
      std::vector<float> query,
      checkpoint.ReadEmbedding({found.type, found.position.partition}, found.position.offset));
  prepare(1, query.data());
  WEFT_ASSIGN_OR_RETURN(TileScorer scorer, TileScorer::Make(spec, dimension));
  return BestEntities(checkpoint, found.type, query, prepare, scorer, options.count,
                      found.position);
}

absl::Status PrintNeighbors(const Checkpoint& checkpoint, const NeighborsOptions& options,
                            const Found& found, std::span<const ScoredEntity> neighbors,
                            EntityNames& names) {
  const std::string metric = options.metric == "cos"
                                 ? "cos"
                                 : absl::StrCat("trained (", checkpoint.config().comparator, ")");
  int64_t total = 0;
  for (const int64_t n : checkpoint.entity_counts()[static_cast<size_t>(found.type)]) total += n;
  nlohmann::ordered_json json = {
      {"entity", options.entity},        {"type", names.type().name},
      {"metric", options.metric},        {"comparator", checkpoint.config().comparator},
      {"version", checkpoint.version()}, {"neighbors", nlohmann::ordered_json::array()}};
  std::cout << options.entity << " (" << names.type().name << "), nearest of " << FormatCount(total)
            << " by " << metric << "\n";
  for (size_t i = 0; i < neighbors.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const std::string name, names.NameOf(neighbors[i].position));
    std::cout << absl::StrFormat("%4d  %8.4f  ", i + 1, neighbors[i].score) << name << "\n";
    json["neighbors"].push_back({{"entity", name}, {"score", neighbors[i].score}});
  }
  if (options.json_path.empty()) return absl::OkStatus();
  return WriteReport(options.json_path, json.dump(2) + "\n");
}

absl::Status Run(const Checkpoint& checkpoint, const NeighborsOptions& options,
                 std::vector<EntityNames>& names, const Found& found) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<ScoredEntity> neighbors,
                        FindNeighbors(checkpoint, options, found));
  return PrintNeighbors(checkpoint, options, found, neighbors,
                        names[static_cast<size_t>(found.type)]);
}

int Neighbors(const NeighborsOptions& options) {
  const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint("neighbors", options.checkpoint);
  if (!checkpoint.ok()) return Fail("neighbors", checkpoint.status(), /*usage=*/true);
  std::vector<EntityNames> names;
  for (size_t t = 0; t < checkpoint->config().entities.size(); ++t) {
    names.emplace_back(*checkpoint, static_cast<EntityTypeId>(t));
  }
  const absl::StatusOr<Found> found = FindInTypes(*checkpoint, options, names);
  if (!found.ok()) return Fail("neighbors", found.status());
  const absl::Status status = Run(*checkpoint, options, names, *found);
  return status.ok() ? 0 : Fail("neighbors", status);
}

}  // namespace

void AddNeighborsCommand(CLI::App& app, Action* action) {
  CLI::App* const command =
      app.add_subcommand("neighbors", "List the entities nearest to one, by their vectors");
  const auto options = std::make_shared<NeighborsOptions>();
  AddCheckpointOptions(*command, &options->checkpoint);
  command->add_option("--entity", options->entity, "The entity's name")
      ->required()
      ->type_name("NAME");
  command
      ->add_option("--type", options->type,
                   "Its entity type (default: the one that has such an entity)")
      ->type_name("TYPE");
  command->add_option("-k", options->count, "How many to list")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  command
      ->add_option("--metric", options->metric,
                   "cos, or trained: the model's comparator. By a trained dot product, entities "
                   "with long vectors (the frequent ones) are near to everything.")
      ->check(CLI::IsMember({"cos", "trained"}));
  AddReportOption(*command, &options->json_path, "Write the result to this file, too");
  command->footer(
      "Example:\n"
      "  weft neighbors model --entity dog.n.01 -k 5\n");
  command->callback([options, action] { *action = [options] { return Neighbors(*options); }; });
}

}  // namespace weft::cli
