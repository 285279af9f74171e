// ModelSpec says what is computed for a batch: comparator, loss, operators, negatives, dimensions.
// It is the run configuration with names resolved, without paths and schedules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/run_config.h"
#include "services/common/types.h"

namespace weft {

enum class Comparator { kDot, kCos, kL2, kSquaredL2, kCustom };
enum class Operator { kNone, kTranslation, kDiagonal, kLinear, kAffine, kComplexDiagonal, kCustom };
enum class Loss { kRanking, kLogistic, kSoftmax, kCustom };

// How the negatives of one side are made.
enum class NegativeKind { kNone, kUniform, kBatchUniform, kAll };

struct RelationSpec {
  std::string name;
  EntityTypeId lhs = 0;
  EntityTypeId rhs = 0;
  float weight = 1;
  Operator op = Operator::kNone;
  std::string operator_name = "none";  // what is registered, when op is kCustom
  bool all_negs = false;
};

struct EntityTypeSpec {
  std::string name;
  int dimension = 0;
};

struct ModelSpec {
  std::vector<EntityTypeSpec> entity_types;
  std::vector<RelationSpec> relations;
  // 0: static relations: a batch has edges of one relation, whose operator acts on the right-hand
  // side only. Otherwise dynamic: `relations` has one entry, a batch mixes relations
  // 0..num_dynamic_relations-1, and there are two operators, one for each side.
  int64_t num_dynamic_relations = 0;

  Comparator comparator = Comparator::kCos;
  std::string comparator_name = "cos";
  bool bias = false;  // coordinate 0 is added to the score instead of being compared
  Loss loss = Loss::kRanking;
  std::string loss_name = "ranking";
  float margin = 0.1f;
  double regularization_coef = 0;  // N3; 0: none
  float max_norm = 0;              // 0: none
  bool global_emb = true;
  int batch_size = 1000;
  int num_batch_negs = 50;
  int num_uniform_negs = 50;
  bool disable_lhs_negs = false;
  bool disable_rhs_negs = false;
  float lr = 1e-2f;
  float relation_lr = 1e-2f;

  // By side and relation: whether its entities there are featurized. Empty: none on that side are.
  std::vector<uint8_t> featurized_relations[2];

  bool dynamic() const { return num_dynamic_relations > 0; }
  const RelationSpec& relation(RelationTypeId rel) const { return relations[dynamic() ? 0 : rel]; }
  // Every operator acts within one relation, whose sides must agree in dimension.
  int dimension(RelationTypeId rel) const { return entity_types[relation(rel).lhs].dimension; }

  bool featurized(RelationTypeId rel, Side side) const {
    const std::vector<uint8_t>& of_side = featurized_relations[static_cast<int>(side)];
    return !of_side.empty() && of_side[static_cast<size_t>(dynamic() ? 0 : rel)] != 0;
  }
  NegativeKind negatives(RelationTypeId rel, Side side) const;
  // Uniform negatives of each negative chunk: none of a featurized side, whose entities cannot be
  // listed.
  int64_t UniformNegatives(RelationTypeId rel, Side side) const;
  // Positives that share negatives: PBG's chunk size for a batch of `num_edges` of relation `rel`.
  int64_t NegativeChunkSize(RelationTypeId rel, int64_t num_edges) const;
};

// `num_dynamic_relations`: from the data (dynamic_rel_count.txt), 0 for static relations.
// Errors: InvalidArgument when the sides of a relation differ in dimension, and whatever else makes
// a step impossible; the message names the keys.
absl::StatusOr<ModelSpec> MakeModelSpec(const RunConfig& config, int64_t num_dynamic_relations);

// The spec with the evaluation's numbers of negatives (eval_num_batch_negs, ...).
ModelSpec EvaluationSpec(ModelSpec spec, const RunConfig& config);

}  // namespace weft
