// StepCase is one small batch with everything that a BatchStep needs: what the tests of the
// reference, and the comparison of both implementations, compute.
//
// Drawn numbers are multiples of 2^-14 (2^-10 in few dimensions) in [-1, 1], so that a step of
// 2^-16 is exact in float32 and finite differences see no rounding of the inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/common/embedding_partition.h"
#include "services/common/parameter_set.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/model/model_spec.h"

namespace weft::testing {

enum class Featurized { kNone, kLhs, kRhs, kBoth };

enum class Negatives { kBatchAndUniform, kUniform, kBatch, kAll, kNoneOnLhs, kNoneOnRhs };

inline constexpr Comparator kComparators[] = {Comparator::kDot, Comparator::kCos, Comparator::kL2,
                                              Comparator::kSquaredL2};
inline constexpr Operator kOperators[] = {Operator::kNone,     Operator::kTranslation,
                                          Operator::kDiagonal, Operator::kLinear,
                                          Operator::kAffine,   Operator::kComplexDiagonal};
inline constexpr Loss kLosses[] = {Loss::kRanking, Loss::kLogistic, Loss::kSoftmax};
inline constexpr Negatives kNegatives[] = {Negatives::kBatchAndUniform, Negatives::kUniform,
                                           Negatives::kBatch,           Negatives::kAll,
                                           Negatives::kNoneOnLhs,       Negatives::kNoneOnRhs};

std::string NameOf(Comparator comparator);
std::string NameOf(Operator op);
std::string NameOf(Loss loss);
std::string NameOf(Negatives negatives);

struct StepOptions {
  Comparator comparator = Comparator::kDot;
  bool bias = false;
  Operator op = Operator::kNone;
  bool dynamic = false;
  Loss loss = Loss::kSoftmax;
  Negatives negatives = Negatives::kBatchAndUniform;

  bool weights = false;
  bool shared_table = false;  // both sides the same entity type and the same table
  bool global_emb = false;
  float regularization_coef = 0;
  float max_norm = 0;
  float relation_weight = 1;
  Featurized featurized = Featurized::kNone;  // with a shared table, both sides or none
  float margin = 0.1f;
  int dimension = 6;
  int num_edges = 5;
  int chunk_size = 3;  // positives of a negative chunk
  int num_uniform_negs = 2;
  int num_entities = 7;  // of each side (features, if it is featurized); edges repeat entities when
                         // there are more edges

  std::string Name() const;
};

struct StepCase {
  ModelSpec spec;
  ParameterSet parameters;
  EmbeddingPartition lhs_partition;
  EmbeddingPartition rhs_partition;  // unused when both sides share a table
  bool shared_table = false;
  std::vector<EntityOffset> lhs;
  std::vector<EntityOffset> rhs;
  std::vector<RelationTypeId> rel;
  std::vector<float> weight;
  FeatureBags bags[2];  // by side; none: not featurized
  SampledNegatives negatives;

  EdgeBatch batch() const {
    return {lhs,
            rhs,
            rel,
            weight,
            bags[0].empty() ? nullptr : &bags[0],
            bags[1].empty() ? nullptr : &bags[1]};
  }
  BatchTables tables() {
    return {View(lhs_partition), View(shared_table ? lhs_partition : rhs_partition)};
  }
  EmbeddingPartition& partition(Side side) {
    return side == Side::kLhs || shared_table ? lhs_partition : rhs_partition;
  }
  RelationTypeId relation() const { return spec.dynamic() ? 0 : rel[0]; }
  StepCase Clone() const;
};

// A case with drawn tables, sums, parameters, edges and samples: a function of (options, seed).
StepCase DrawStepCase(const StepOptions& options, uint64_t seed);

// Everything that a step may write, in one vector; of it, what is no table.
std::vector<float> AllFloats(const StepCase& c);
std::vector<float> ParameterFloats(const StepCase& c);
// The same bits, NaNs included.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

// The distance of the closest ranking hinge |margin - pos + neg| to its kink; infinite for other
// losses. Pairs that are not compared (-1e9) do not count.
double ClosestHinge(const ModelSpec& spec, const BatchScores& scores);

}  // namespace weft::testing
