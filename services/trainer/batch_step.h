// BatchStep computes one batch: scores, loss, gradients, and the optimizer's step on the tables and
// the shared parameters. Two implementations: FusedBatchStep (services/trainer/fused; the default)
// and the reference (services/trainer/nn; LibTorch and autograd), which one test holds together.
//
// The semantics are PBG's:
//  1. Gather the rows of positives and negatives. max_norm > 0: a row whose 2-norm is larger is
//     scaled to max_norm, in the table, at that moment (factor max_norm / (norm + 1e-7)).
//  2. Add the entity type's global embedding, apply the relation's operator (static: rhs only, to
//     positives and negatives alike; dynamic: to the positives of the side that is *not* corrupted,
//     with that side's own operator parameters), prepare for the comparator (cos: divide the
//     coordinates after the bias by their 2-norm; a zero vector stays zero, with zero gradient).
//  3. Score. dot and cos: inner product. l2: -sqrt(max(d2, 1e-30)); squared_l2: -d2, with
//     d2 = |a - b|^2. With bias, coordinate 0 of both vectors is added instead of compared.
//     A batch is cut into negative chunks; positives of one chunk share its negatives. The
//     candidates of a chunk, in this order: the chunk's own positives of that side (batch
//     negatives), then its uniform samples. A positive against itself scores -1e9, and so does
//     padding in the last chunk, which has as many candidates as the others.
//     all: one chunk, candidates are the whole table, the edge's own entity masked with -1e9.
//  4. Loss per side, summed over edges, times the relation's weight and each edge's weight:
//     ranking   sum_ij max(0, margin - pos_i + neg_ij)
//     logistic  sum_i softplus(-pos_i) + (1 / num_neg) sum_ij softplus(neg_ij)
//     softmax   sum_i log(1 + exp(logsumexp_j neg_ij - pos_i))
//     No negatives on a side: ranking and softmax 0, logistic the positives' part.
//     Total = lhs side + rhs side; static mode scores a positive once and counts it on both.
//  5. N3 (Lacroix et al. 2018), added for backward and reported apart: coef * (sum |p|^3 over the
//     operator's parameters + sum |x|^3 over prepared positives of both sides), where |.| is the
//     complex modulus for complex_diagonal, else absolute. Static: parameters count once per
//     negative chunk; dynamic: once per edge and direction, and positives once per direction.
//  6. Row-wise Adagrad on the tables: gradients of a row summed over the batch (and both sides,
//  when
//     they share a table), G += mean(g^2), row -= lr * g / (sqrt(G) + 1e-10). AsyncAdagrad on
//     parameters: element-wise, same form, lr = relation_lr, eps 1e-10.
// A featurized side: an entity is the mean of its features' rows (feature_bags.h), and where the
// above says a row of it, that mean is meant; max_norm, gradients (each feature its share, as often
// as the bag has it) and Adagrad are the features' rows'. Its entities cannot be listed: such a
// side has no uniform negatives (NegativeKind::kAll and kUniform are refused in the configuration).
// Where PBG has a defect (L2's cancellation, cos of zero, NaN ranks), the right value is computed.
//
// Shapes: n edges, c negative chunks, u uniform negatives a chunk, d dimension.
// Thread-safety: one BatchStep a thread (it owns its workspace). Tables and parameters are shared
// between threads without locks: HOGWILD.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/embedding_partition.h"
#include "services/common/feature_bags.h"
#include "services/common/parameter_set.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

// Borrowed columns of n >= 1 edges. Static relations: all of `rel` are equal. On a featurized side,
// ids are numbers of bags.
struct EdgeBatch {
  std::span<const EntityOffset> lhs;
  std::span<const EntityOffset> rhs;
  std::span<const RelationTypeId> rel;
  std::span<const float> weight;          // empty: 1
  const FeatureBags* lhs_bags = nullptr;  // of a featurized side
  const FeatureBags* rhs_bags = nullptr;

  std::span<const EntityOffset> ids(Side side) const { return side == Side::kLhs ? lhs : rhs; }
  const FeatureBags* bags(Side side) const { return side == Side::kLhs ? lhs_bags : rhs_bags; }
  int64_t size() const { return static_cast<int64_t>(lhs.size()); }
};

// Uniform samples of both sides, [c, u] each, drawn before the step (negative_sampler.h) so that
// every implementation sees the same. Empty for a side without uniform negatives.
struct SampledNegatives {
  std::vector<EntityOffset> lhs;
  std::vector<EntityOffset> rhs;
};

// The two tables that a batch of one relation touches; the same table twice when both sides are.
struct BatchTables {
  EmbeddingTable lhs;
  EmbeddingTable rhs;
};

struct BatchStats {
  int64_t count = 0;
  double loss = 0;  // sum over edges, without regularization
  double reg = 0;
  int64_t violators_lhs = 0;  // negatives that score above their positive
  int64_t violators_rhs = 0;

  void Add(const BatchStats& other) {
    count += other.count;
    loss += other.loss;
    reg += other.reg;
    violators_lhs += other.violators_lhs;
    violators_rhs += other.violators_rhs;
  }
};

// lhs_* belong to the corruption of the left-hand side. Static: lhs_pos == rhs_pos.
struct BatchScores {
  std::vector<float> lhs_pos;  // [n]
  std::vector<float> rhs_pos;  // [n]
  std::vector<float> lhs_neg;  // [n, lhs_num_neg]
  std::vector<float> rhs_neg;  // [n, rhs_num_neg]
  int64_t lhs_num_neg = 0;
  int64_t rhs_num_neg = 0;
};

// For tests: what the optimizer would be given.
struct BatchGradients {
  struct Rows {
    std::vector<EntityOffset> offsets;  // ascending, unique
    std::vector<float> values;          // [offsets, d]
  };
  Rows lhs;
  Rows rhs;  // empty when both sides share a table: then all rows are in lhs
  std::map<std::string, std::vector<float>> parameters;  // whole parameters by name
};

class BatchStep {
 public:
  virtual ~BatchStep() = default;

  // Forward, backward and the optimizer's step.
  // Errors: OutOfRange when a score or gradient is not finite (no such number has been written
  // then, nor any parameter, but rows may have made their step with finite gradients; the message
  // names the relation), Internal for anything else.
  virtual absl::StatusOr<BatchStats> Train(const EdgeBatch& batch,
                                           const SampledNegatives& negatives,
                                           const BatchTables& tables) = 0;

  // Forward only, without any write except max_norm's. Errors as Train.
  virtual absl::StatusOr<BatchStats> Score(const EdgeBatch& batch,
                                           const SampledNegatives& negatives,
                                           const BatchTables& tables, BatchScores* scores) = 0;

  // Forward and backward without the step; for tests. Errors as Train.
  virtual absl::StatusOr<BatchGradients> Gradients(const EdgeBatch& batch,
                                                   const SampledNegatives& negatives,
                                                   const BatchTables& tables) = 0;
};

// Makes one BatchStep a worker. `parameters` must outlive the steps.
class BatchStepFactory {
 public:
  virtual ~BatchStepFactory() = default;
  // The parameters that the model has, with their initial values.
  virtual absl::StatusOr<ParameterSet> MakeParameters(const ModelSpec& spec) const = 0;
  virtual absl::StatusOr<std::unique_ptr<BatchStep>> Make(const ModelSpec& spec,
                                                          ParameterSet* parameters) const = 0;
};

}  // namespace weft
