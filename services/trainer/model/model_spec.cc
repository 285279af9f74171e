#include "services/trainer/model/model_spec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/featurized_relations.h"

namespace weft {
namespace {

Comparator ParseComparator(const std::string& name) {
  if (name == "dot") return Comparator::kDot;
  if (name == "cos") return Comparator::kCos;
  if (name == "l2") return Comparator::kL2;
  if (name == "squared_l2") return Comparator::kSquaredL2;
  return Comparator::kCustom;
}

Operator ParseOperator(const std::string& name) {
  if (name == "none") return Operator::kNone;
  if (name == "translation") return Operator::kTranslation;
  if (name == "diagonal") return Operator::kDiagonal;
  if (name == "linear") return Operator::kLinear;
  if (name == "affine") return Operator::kAffine;
  if (name == "complex_diagonal") return Operator::kComplexDiagonal;
  return Operator::kCustom;
}

Loss ParseLoss(const std::string& name) {
  if (name == "ranking") return Loss::kRanking;
  if (name == "logistic") return Loss::kLogistic;
  if (name == "softmax") return Loss::kSoftmax;
  return Loss::kCustom;
}

}  // namespace

NegativeKind ModelSpec::negatives(RelationTypeId rel, Side side) const {
  if (side == Side::kLhs ? disable_lhs_negs : disable_rhs_negs) return NegativeKind::kNone;
  if (relation(rel).all_negs) return NegativeKind::kAll;
  return num_batch_negs == 0 ? NegativeKind::kUniform : NegativeKind::kBatchUniform;
}

int64_t ModelSpec::UniformNegatives(RelationTypeId rel, Side side) const {
  const NegativeKind kind = negatives(rel, side);
  const bool uniform = kind == NegativeKind::kUniform || kind == NegativeKind::kBatchUniform;
  return uniform && !featurized(rel, side) ? num_uniform_negs : 0;
}

int64_t ModelSpec::NegativeChunkSize(RelationTypeId rel, int64_t num_edges) const {
  if (relation(rel).all_negs) return num_edges;
  const int64_t wanted = num_batch_negs == 0 ? num_uniform_negs : num_batch_negs;
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(num_edges, 1));
}

absl::StatusOr<ModelSpec> MakeModelSpec(const RunConfig& config, int64_t num_dynamic_relations) {
  ModelSpec spec;
  for (size_t t = 0; t < config.entities.size(); ++t) {
    spec.entity_types.push_back(
        {config.entities[t].name, config.EntityDimension(static_cast<EntityTypeId>(t))});
  }
  for (size_t r = 0; r < config.relations.size(); ++r) {
    const RelationConfig& from = config.relations[r];
    RelationSpec& to = spec.relations.emplace_back();
    to.name = from.name;
    to.lhs = from.lhs;
    to.rhs = from.rhs;
    to.weight = static_cast<float>(from.weight);
    to.op = ParseOperator(from.operator_name);
    to.operator_name = from.operator_name;
    to.all_negs = from.all_negs;
    const int lhs_dim = spec.entity_types[to.lhs].dimension;
    const int rhs_dim = spec.entity_types[to.rhs].dimension;
    if (lhs_dim != rhs_dim) {
      return absl::InvalidArgumentError(absl::StrCat(
          "relations[", r, "] (", from.name, "): entity types ", spec.entity_types[to.lhs].name,
          " and ", spec.entity_types[to.rhs].name, " have dimensions ", lhs_dim, " and ", rhs_dim,
          "; the two sides of a relation must have the same"));
    }
  }
  for (const Side side : kSides) {
    spec.featurized_relations[static_cast<int>(side)] = FeaturizedRelations(config, side);
  }
  spec.num_dynamic_relations = config.dynamic_relations ? num_dynamic_relations : 0;
  if (config.dynamic_relations && num_dynamic_relations <= 0) {
    return absl::InvalidArgumentError(
        "dynamic_relations: the data has no relations (dynamic_rel_count.txt)");
  }
  spec.comparator = ParseComparator(config.comparator);
  spec.comparator_name = config.comparator;
  spec.bias = config.bias;
  spec.loss = ParseLoss(config.loss_fn);
  spec.loss_name = config.loss_fn;
  spec.margin = static_cast<float>(config.margin);
  spec.regularization_coef = config.regularization_coef;
  spec.max_norm = static_cast<float>(config.max_norm.value_or(0));
  spec.global_emb = config.global_emb;
  spec.batch_size = config.batch_size;
  spec.num_batch_negs = config.num_batch_negs;
  spec.num_uniform_negs = config.num_uniform_negs;
  spec.disable_lhs_negs = config.disable_lhs_negs;
  spec.disable_rhs_negs = config.disable_rhs_negs;
  spec.lr = static_cast<float>(config.lr);
  spec.relation_lr = static_cast<float>(config.relation_lr.value_or(config.lr));
  return spec;
}

ModelSpec EvaluationSpec(ModelSpec spec, const RunConfig& config) {
  if (config.eval_num_batch_negs) spec.num_batch_negs = *config.eval_num_batch_negs;
  if (config.eval_num_uniform_negs) spec.num_uniform_negs = *config.eval_num_uniform_negs;
  // Whole negative chunks, as PBG rounds its evaluation batches.
  if (spec.num_batch_negs > 0) {
    spec.batch_size =
        (spec.batch_size + spec.num_batch_negs - 1) / spec.num_batch_negs * spec.num_batch_negs;
  }
  return spec;
}

}  // namespace weft
