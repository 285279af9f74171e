// What `weft eval` found, and how it is told: as tables for people and as JSON for machines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/common/types.h"
#include "services/trainer/evaluator.h"

namespace weft::cli {

// Everything that two figures must agree in before they may be compared.
struct EvaluationProtocol {
  std::string checkpoint;
  int64_t checkpoint_version = 0;
  std::vector<std::string> edges;
  int64_t num_edges = 0;
  std::vector<std::string> filters;  // without the evaluated edges, which always belong to it
  int64_t num_filter_edges = 0;
  struct EntityType {
    std::string name;
    int64_t num_entities = 0;
  };
  std::vector<EntityType> candidates;  // the types that are ranked
  int64_t sampled_candidates = 0;      // 0: all entities of the type
  uint64_t seed = 0;                   // of the samples
  std::vector<Side> sides;             // that are asked for
  struct RelationSide {
    std::string relation;
    Side side = Side::kLhs;
  };
  std::vector<RelationSide> unranked;  // featurized: never asked for
};

// Entities of the evaluated edges that stand in no edge of training.
struct UnseenEntities {
  int64_t num_entities = 0;
  GroupMetrics touching;  // edges with such an entity
  GroupMetrics others;
};

struct RelationMetrics {
  RelationTypeId id = 0;
  std::string name;
  GroupMetrics metrics;
};

struct EvaluationReport {
  EvaluationProtocol protocol;
  GroupMetrics all;
  std::optional<UnseenEntities> unseen;      // none: the edges of training were not there
  std::string unseen_note;                   // why not
  std::vector<RelationMetrics> by_relation;  // empty: not asked for
};

std::string FormatEvaluation(const EvaluationReport& report);

// Keys: docs/evaluation.md. Ends with a line break.
std::string EvaluationToJson(const EvaluationReport& report);

}  // namespace weft::cli
