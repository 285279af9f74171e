#include "tests/trainer/reference_step_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/random.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/negative_sampler.h"

namespace weft::testing {
namespace {

constexpr float kGrain = 0x1.0p-10f;

float Draw(RandomStream& random) {
  return (static_cast<float>(random.Below(2049)) - 1024.0f) * kGrain;
}

// A power of two near sqrt(16 / dimension), at most 1: keeps scores, and what matrices do to
// vectors, of the same size in every dimension, as trained ones are.
float ScaleFor(int64_t dimension) {
  float scale = 1;
  while (scale * scale * static_cast<float>(dimension) > 16) scale /= 2;
  return scale;
}

// Well above zero: the first step from a sum of zero is the sign of the gradient, which a rounding
// may flip.
float DrawSum(RandomStream& random) { return 0.125f + std::abs(Draw(random)); }

EmbeddingPartition DrawPartition(int64_t count, int64_t dimension, RandomStream& random) {
  EmbeddingPartition partition(count, dimension);
  const float scale = ScaleFor(dimension);
  for (float& x : partition.embeddings.span()) x = scale * Draw(random);
  for (float& sum : partition.adagrad_sums.span()) sum = DrawSum(random);
  return partition;
}

bool IsFeaturized(const StepOptions& options, Side side) {
  switch (options.featurized) {
    case Featurized::kNone:
      return false;
    case Featurized::kLhs:
      return side == Side::kLhs;
    case Featurized::kRhs:
      return side == Side::kRhs;
    case Featurized::kBoth:
      break;
  }
  return true;
}

}  // namespace

std::string NameOf(Comparator comparator) {
  static constexpr const char* kNames[] = {"dot", "cos", "l2", "squared_l2", "custom"};
  return kNames[static_cast<int>(comparator)];
}

std::string NameOf(Operator op) {
  static constexpr const char* kNames[] = {"none",   "translation",      "diagonal", "linear",
                                           "affine", "complex_diagonal", "custom"};
  return kNames[static_cast<int>(op)];
}

std::string NameOf(Loss loss) {
  static constexpr const char* kNames[] = {"ranking", "logistic", "softmax", "custom"};
  return kNames[static_cast<int>(loss)];
}

std::string NameOf(Negatives negatives) {
  static constexpr const char* kNames[] = {"batch+uniform", "uniform",     "batch",
                                           "all",           "none on lhs", "none on rhs"};
  return kNames[static_cast<int>(negatives)];
}

std::string StepOptions::Name() const {
  std::string name =
      absl::StrCat(NameOf(comparator), bias ? " bias" : "", ", ", NameOf(op),
                   dynamic ? " dynamic" : " static", ", ", NameOf(loss), ", ", NameOf(negatives));
  if (weights) name += ", weights";
  if (shared_table) name += ", shared table";
  static constexpr const char* kFeaturized[] = {"", ", featurized lhs", ", featurized rhs",
                                                ", featurized"};
  name += kFeaturized[static_cast<int>(featurized)];
  if (global_emb) name += ", global embedding";
  if (regularization_coef != 0) name += ", N3";
  if (max_norm != 0) name += ", max_norm";
  if (relation_weight != 1) name += ", relation weight";
  absl::StrAppend(&name, ", d=", dimension, " n=", num_edges, " chunk=", chunk_size, "+",
                  num_uniform_negs);
  return name;
}

StepCase StepCase::Clone() const {
  StepCase copy;
  copy.spec = spec;
  for (const Parameter& p : parameters.all()) {
    Parameter& to = copy.parameters.Add(p.name, p.shape, p.values.rows(), p.values.cols());
    to.values = p.values.Clone();
    to.adagrad_sums = p.adagrad_sums.Clone();
  }
  copy.parameters.steps = parameters.steps;
  copy.lhs_partition = lhs_partition.Clone();
  copy.rhs_partition = rhs_partition.Clone();
  copy.shared_table = shared_table;
  copy.lhs = lhs;
  copy.rhs = rhs;
  copy.rel = rel;
  copy.weight = weight;
  for (int side = 0; side < 2; ++side) copy.bags[side] = bags[side];
  copy.negatives = negatives;
  return copy;
}

StepCase DrawStepCase(const StepOptions& options, uint64_t seed) {
  StepCase c;
  c.shared_table = options.shared_table;

  ModelSpec& spec = c.spec;
  spec.entity_types.push_back({"user", options.dimension});
  if (!options.shared_table) spec.entity_types.push_back({"item", options.dimension});
  RelationSpec relation;
  relation.name = "likes";
  relation.lhs = 0;
  relation.rhs = options.shared_table ? 0 : 1;
  relation.weight = options.relation_weight;
  relation.op = options.op;
  relation.operator_name = NameOf(options.op);
  relation.all_negs = options.negatives == Negatives::kAll;
  if (options.dynamic) {
    spec.num_dynamic_relations = 3;
    spec.relations = {relation};
  } else {
    // A batch of the second relation: a step that takes the first one's parameters is found out.
    RelationSpec other = relation;
    other.name = "knows";
    other.weight = 7;
    spec.relations = {other, relation};
  }
  spec.comparator = options.comparator;
  spec.comparator_name = NameOf(options.comparator);
  spec.bias = options.bias;
  spec.loss = options.loss;
  spec.loss_name = NameOf(options.loss);
  spec.margin = options.margin;
  spec.regularization_coef = options.regularization_coef;
  spec.max_norm = options.max_norm;
  spec.global_emb = options.global_emb;
  spec.batch_size = options.num_edges;
  spec.num_batch_negs = options.negatives == Negatives::kUniform ? 0 : options.chunk_size;
  spec.num_uniform_negs = options.negatives == Negatives::kBatch ? 0 : options.num_uniform_negs;
  // Featurized entities cannot be listed.
  const auto none = [&](Negatives none_there, Side side) {
    return options.negatives == none_there ||
           (options.negatives == Negatives::kAll && IsFeaturized(options, side));
  };
  spec.disable_lhs_negs = none(Negatives::kNoneOnLhs, Side::kLhs);
  spec.disable_rhs_negs = none(Negatives::kNoneOnRhs, Side::kRhs);
  spec.lr = 0.1f;
  spec.relation_lr = 0.05f;
  for (const Side side : kSides) {
    if (!IsFeaturized(options, side)) continue;
    spec.featurized_relations[static_cast<int>(side)].assign(spec.relations.size(), 1);
  }

  RandomStream random(seed, RandomUse::kTest);
  c.lhs_partition = DrawPartition(options.num_entities, options.dimension, random);
  c.rhs_partition = DrawPartition(options.num_entities, options.dimension, random);
  c.parameters = MakeInitialParameters(spec);
  for (Parameter& p : c.parameters.all()) {
    const bool is_matrix = p.shape.size() >= 2 && p.shape[p.shape.size() - 2] == options.dimension;
    const float scale = is_matrix ? ScaleFor(options.dimension) : 1;
    for (float& x : p.values.span()) x += scale * Draw(random) / 2;
    for (float& sum : p.adagrad_sums.span()) sum = DrawSum(random);
  }
  for (int i = 0; i < options.num_edges; ++i) {
    c.lhs.push_back(static_cast<EntityOffset>(random.Below(options.num_entities)));
    c.rhs.push_back(static_cast<EntityOffset>(random.Below(options.num_entities)));
    c.rel.push_back(options.dynamic ? static_cast<RelationTypeId>(random.Below(3)) : 1);
    if (options.weights) c.weight.push_back(0.25f * static_cast<float>(1 + random.Below(8)));
  }
  for (const Side side : kSides) {
    if (!IsFeaturized(options, side)) continue;
    FeatureBags& bags = c.bags[static_cast<int>(side)];
    // Bags of the bucket that the batch does not have, too.
    for (int i = 0; i < options.num_edges + 2; ++i) {
      std::vector<EntityOffset> bag(random.Below(4));
      for (EntityOffset& feature : bag) {
        feature = static_cast<EntityOffset>(random.Below(options.num_entities));
      }
      bags.Append(bag);
    }
    for (EntityOffset& id : side == Side::kLhs ? c.lhs : c.rhs) {
      id = static_cast<EntityOffset>(random.Below(options.num_edges + 2));
    }
  }
  SampleNegatives(spec, c.relation(), options.num_edges, options.num_entities, options.num_entities,
                  {.seed = seed, .pass = 0, .bucket = {}, .batch = 0}, &c.negatives);
  return c;
}

namespace {

void Append(std::span<const float> values, std::vector<float>* all) {
  all->insert(all->end(), values.begin(), values.end());
}

}  // namespace

std::vector<float> ParameterFloats(const StepCase& c) {
  std::vector<float> all;
  for (const Parameter& p : c.parameters.all()) {
    Append(p.values.span(), &all);
    Append(p.adagrad_sums.span(), &all);
  }
  return all;
}

std::vector<float> AllFloats(const StepCase& c) {
  std::vector<float> all = ParameterFloats(c);
  for (const EmbeddingPartition* partition : {&c.lhs_partition, &c.rhs_partition}) {
    Append(partition->embeddings.span(), &all);
    Append(partition->adagrad_sums.span(), &all);
  }
  return all;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double ClosestHinge(const ModelSpec& spec, const BatchScores& scores) {
  double closest = std::numeric_limits<double>::infinity();
  if (spec.loss != Loss::kRanking) return closest;
  const auto visit = [&](std::span<const float> pos, std::span<const float> neg, int64_t num_neg) {
    for (size_t i = 0; i < neg.size(); ++i) {
      if (neg[i] < -1e8f) continue;
      const double hinge = double{spec.margin} - pos[i / num_neg] + neg[i];
      closest = std::min(closest, std::abs(hinge));
    }
  };
  visit(scores.lhs_pos, scores.lhs_neg, scores.lhs_num_neg);
  visit(scores.rhs_pos, scores.rhs_neg, scores.rhs_num_neg);
  return closest;
}

}  // namespace weft::testing
