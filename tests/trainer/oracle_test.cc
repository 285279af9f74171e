// Holds the fused implementation of BatchStep to the reference: every combination of comparator,
// bias, operator, static and dynamic relations, loss and negatives, with weights, N3, global
// embeddings, max_norm, relation weights, shared tables and shapes varying from one to the next; on
// every vector instruction set of this CPU. The reference in float32 goes through the same, for
// whoever trains with it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/random.h"
#include "services/trainer/fused/all_pass.h"
#include "services/trainer/fused/fused_batch_step.h"
#include "services/trainer/kernels/cpu.h"
#include "services/trainer/nn/reference_factory.h"
#include "tests/testing/status_matchers.h"
#include "tests/trainer/oracle_comparison.h"
#include "tests/trainer/reference_step_case.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::AllFloats;
using ::weft::testing::AskReference;
using ::weft::testing::DrawComparableCase;
using ::weft::testing::DrawStepCase;
using ::weft::testing::ExpectSameAnswers;
using ::weft::testing::Featurized;
using ::weft::testing::IsOk;
using ::weft::testing::kComparators;
using ::weft::testing::kLosses;
using ::weft::testing::kNegatives;
using ::weft::testing::kOperators;
using ::weft::testing::NameOf;
using ::weft::testing::Negatives;
using ::weft::testing::ParameterFloats;
using ::weft::testing::ReferenceAnswers;
using ::weft::testing::SameBits;
using ::weft::testing::StatusIs;
using ::weft::testing::StepCase;
using ::weft::testing::StepOptions;

const BatchStepFactory& Fused() {
  static const FusedBatchStepFactory factory;
  return factory;
}

// Calls visit with the fused implementation on each instruction set.
void ForEveryTarget(const std::function<void(const BatchStepFactory&)>& visit) {
  for (const VectorTarget& target : SupportedVectorTargets()) {
    SCOPED_TRACE(target.name);
    ForceVectorTarget(target.id);
    visit(Fused());
    ForceVectorTarget(0);
  }
}

void ExpectAllAgree(StepCase c) {
  const ReferenceAnswers reference = AskReference(std::move(c));
  ForEveryTarget([&](const BatchStepFactory& fused) { ExpectSameAnswers(reference, fused); });
  SCOPED_TRACE("reference in float32");
  // LibTorch adds thousands of float32 in a row.
  ExpectSameAnswers(reference, nn::ReferenceFactory(nn::Precision::kFloat), /*tolerance=*/3e-5);
}

void ExpectAllAgree(const StepOptions& options) {
  SCOPED_TRACE(options.Name());
  ExpectAllAgree(DrawComparableCase(options));
}

// Everything that is no axis of the combinations, drawn for the n-th of them.
void VaryTheRest(uint64_t n, StepOptions* options) {
  RandomStream random(n, RandomUse::kTest, 2);
  const auto one_in = [&](uint32_t k) { return random.Below(k) == 0; };
  options->weights = one_in(2);
  options->global_emb = one_in(2);
  options->shared_table = one_in(3);
  options->regularization_coef = one_in(2) ? 0.05f : 0;
  options->max_norm = one_in(3) ? 0.9f : 0;
  options->relation_weight = one_in(2) ? 1.5f : 1;
  static constexpr int kDimensions[] = {4, 6, 16, 20, 50};
  options->dimension = kDimensions[random.Below(5)];
  // n: one edge, fewer than a chunk, whole chunks, a partial last chunk, many duplicates.
  struct Shape {
    int num_edges, chunk_size, num_uniform_negs, num_entities;
  };
  static constexpr Shape kShapes[] = {{1, 3, 2, 5},  {3, 8, 5, 9},    {12, 4, 3, 7}, {11, 4, 1, 30},
                                      {7, 1, 6, 40}, {40, 16, 17, 6}, {33, 32, 8, 4}};
  const Shape& shape = kShapes[random.Below(7)];
  options->num_edges = shape.num_edges;
  options->chunk_size = shape.chunk_size;
  options->num_uniform_negs = shape.num_uniform_negs;
  options->num_entities = shape.num_entities;
}

class OracleTest : public ::testing::TestWithParam<Comparator> {};

TEST_P(OracleTest, EveryCombinationAgrees) {
  uint64_t n = 1000 * static_cast<uint64_t>(GetParam());
  for (const bool bias : {false, true}) {
    for (const Operator op : kOperators) {
      for (const bool dynamic : {false, true}) {
        for (const Loss loss : kLosses) {
          for (const Negatives negatives : kNegatives) {
            StepOptions options;
            options.comparator = GetParam();
            options.bias = bias;
            options.op = op;
            options.dynamic = dynamic;
            options.loss = loss;
            options.negatives = negatives;
            VaryTheRest(++n, &options);
            ExpectAllAgree(options);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Featurized sides: with empty bags (zero vectors), features that a bag has twice, and features
// that several bags share. Their negatives are those of the batch; the other side's may be all.
TEST_P(OracleTest, FeaturizedSidesAgree) {
  uint64_t n = 7000 + 1000 * static_cast<uint64_t>(GetParam());
  for (const Featurized featurized : {Featurized::kLhs, Featurized::kRhs, Featurized::kBoth}) {
    for (const Operator op : kOperators) {
      for (const bool dynamic : {false, true}) {
        for (const Loss loss : kLosses) {
          for (const Negatives negatives : {Negatives::kBatchAndUniform, Negatives::kBatch,
                                            Negatives::kNoneOnLhs, Negatives::kNoneOnRhs}) {
            StepOptions options;
            options.comparator = GetParam();
            options.featurized = featurized;
            options.bias = ++n % 2 == 0;
            options.op = op;
            options.dynamic = dynamic;
            options.loss = loss;
            options.negatives = negatives;
            VaryTheRest(n, &options);
            if (featurized != Featurized::kBoth) options.shared_table = false;
            ExpectAllAgree(options);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(OracleTest, AllNegativesOfTheSideThatIsNotFeaturizedAgree) {
  uint64_t n = 0;
  for (const bool lhs : {false, true}) {
    for (const Operator op : {Operator::kNone, Operator::kTranslation, Operator::kLinear}) {
      for (const Loss loss : kLosses) {
        StepOptions options;
        options.comparator = GetParam();
        options.op = op;
        options.dynamic = ++n % 2 == 0;
        options.loss = loss;
        options.negatives = Negatives::kAll;
        options.featurized = lhs ? Featurized::kLhs : Featurized::kRhs;
        options.max_norm = n % 3 == 0 ? 0.9f : 0;
        ExpectAllAgree(options);
      }
    }
  }
}

// The sizes of real runs: several vector registers a row, GEMMs of their usual shape, for `all`
// candidates in more than one tile and queries in more than one block.
TEST_P(OracleTest, LargeBatchesAgree) {
  struct Size {
    int dimension, num_edges, chunk_size, num_uniform_negs, num_entities;
    Negatives negatives;
  };
  uint64_t n = 0;
  for (const Size& size :
       {Size{100, 300, 50, 50, 500, Negatives::kBatchAndUniform},
        Size{200, 120, 50, 500, 300, Negatives::kBatchAndUniform},
        Size{30, 8, 8, 0, 1700, Negatives::kAll}, Size{20, 150, 50, 0, 500, Negatives::kAll}}) {
    for (const Operator op : {Operator::kNone, Operator::kAffine, Operator::kComplexDiagonal}) {
      for (const Loss loss : kLosses) {
        StepOptions options;
        options.comparator = GetParam();
        options.op = op;
        options.loss = loss;
        options.dynamic = ++n % 2 == 0;
        options.weights = n % 3 == 0;
        options.dimension = size.dimension;
        options.num_edges = size.num_edges;
        options.chunk_size = size.chunk_size;
        options.num_uniform_negs = size.num_uniform_negs;
        options.num_entities = size.num_entities;
        options.negatives = size.negatives;
        ExpectAllAgree(options);
      }
    }
  }
}

// More candidates than the fused step keeps exponentials of: the others' are computed twice.
TEST_P(OracleTest, AllNegativesOfManyEntitiesAgree) {
  StepOptions options;
  options.comparator = GetParam();
  options.negatives = Negatives::kAll;
  options.num_entities = 131'500;
  static_assert(131'500 > AllPass::kKeptFloats / RowStride(5));
  ExpectAllAgree(options);
}

// With cos: no direction, no gradient. With the others an ordinary vector.
TEST_P(OracleTest, ZeroVectorsAgree) {
  for (const bool dynamic : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const Operator op : kOperators) {
        StepOptions options;
        options.comparator = GetParam();
        options.op = op;
        options.dynamic = dynamic;
        options.bias = bias;
        options.loss = Loss::kLogistic;
        options.num_entities = 4;
        options.regularization_coef = 0.1f;
        SCOPED_TRACE(options.Name());
        StepCase c = DrawStepCase(options, 1);
        std::ranges::fill(c.lhs_partition.embeddings.row(c.lhs[1]), 0.0f);
        std::ranges::fill(c.rhs_partition.embeddings.row(c.negatives.rhs[0]), 0.0f);
        ExpectAllAgree(std::move(c));
      }
    }
  }
}

// The logistic loss learns from its positives alone, the others learn nothing.
TEST_P(OracleTest, WithoutAnyNegativesTheyAgree) {
  for (const bool dynamic : {false, true}) {
    for (const Operator op : {Operator::kNone, Operator::kComplexDiagonal}) {
      for (const Loss loss : kLosses) {
        StepOptions options;
        options.comparator = GetParam();
        options.op = op;
        options.dynamic = dynamic;
        options.loss = loss;
        options.dimension = 20;
        options.regularization_coef = op == Operator::kNone ? 0 : 0.05f;
        SCOPED_TRACE(options.Name());
        StepCase c = DrawStepCase(options, 1);
        c.spec.disable_lhs_negs = true;
        c.spec.disable_rhs_negs = true;
        c.negatives = {};
        ExpectAllAgree(std::move(c));
      }
    }
  }
}

// With l2: at the kink of the distance there is no gradient. Positives and negatives both.
TEST_P(OracleTest, EqualVectorsAgree) {
  for (const bool dynamic : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const Loss loss : {Loss::kLogistic, Loss::kSoftmax}) {
        StepOptions options;
        options.comparator = GetParam();
        options.dynamic = dynamic;
        options.bias = bias;
        options.loss = loss;
        options.num_entities = 6;
        options.dimension = 20;
        SCOPED_TRACE(options.Name());
        StepCase c = DrawStepCase(options, 1);
        c.rhs_partition.embeddings = c.lhs_partition.embeddings.Clone();
        c.rhs[0] = c.lhs[0];
        c.negatives.rhs[1] = c.lhs[1];
        ExpectAllAgree(std::move(c));
      }
    }
  }
}

// Far from the origin and close to each other: |a|^2 - 2ab + |b|^2 has nothing left of the
// distance.
TEST(OracleDistancesTest, CloseVectorsFarFromTheOriginAgree) {
  for (const Comparator comparator : {Comparator::kL2, Comparator::kSquaredL2}) {
    for (const bool dynamic : {false, true}) {
      StepOptions options;
      options.comparator = comparator;
      options.dynamic = dynamic;
      options.dimension = 20;
      SCOPED_TRACE(options.Name());
      StepCase c = DrawStepCase(options, 1);
      for (EmbeddingPartition* partition : {&c.lhs_partition, &c.rhs_partition}) {
        for (float& x : partition->embeddings.span()) x = 32 + x / 8;
      }
      ExpectAllAgree(std::move(c));
    }
  }
}

// Where a number that is not finite may come from.
enum class Origin { kLhsPositive, kRhsPositive, kLhsNegative, kRhsNegative, kOperator, kGlobal };
constexpr Origin kOrigins[] = {Origin::kLhsPositive, Origin::kRhsPositive, Origin::kLhsNegative,
                               Origin::kRhsNegative, Origin::kOperator,    Origin::kGlobal};

float& NumberOf(Origin origin, StepCase& c) {
  const bool dynamic = c.spec.dynamic();
  const bool all = c.negatives.lhs.empty();  // then any row is a negative
  switch (origin) {
    case Origin::kLhsPositive:
      return c.lhs_partition.embeddings.row(c.lhs[1])[3];
    case Origin::kRhsPositive:
      return c.rhs_partition.embeddings.row(c.rhs[0])[4];
    case Origin::kLhsNegative:
      return c.lhs_partition.embeddings.row(all ? 17 : c.negatives.lhs[2])[5];
    case Origin::kRhsNegative:
      return c.rhs_partition.embeddings.row(all ? 17 : c.negatives.rhs[1])[19];
    case Origin::kOperator:
      return c.parameters
          .Find(dynamic ? "relations/0/operator/rhs/diagonals"
                        : "relations/1/operator/rhs/diagonal")
          ->values.row(dynamic ? c.rel[0] : 0)[2];
    case Origin::kGlobal:
      break;
  }
  return c.parameters.Find("entities/item/global_embedding")->values.row(0)[1];
}

void ExpectRefused(const StepCase& c, const BatchStepFactory& factory) {
  StepCase tried = c.Clone();
  const auto step = factory.Make(tried.spec, &tried.parameters);
  ASSERT_THAT(step, IsOk());
  const auto refused = StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("relation "));

  BatchScores scores;
  EXPECT_THAT((*step)->Score(tried.batch(), tried.negatives, tried.tables(), &scores), refused);
  EXPECT_TRUE(SameBits(AllFloats(tried), AllFloats(c)));

  EXPECT_THAT((*step)->Train(tried.batch(), tried.negatives, tried.tables()), refused);
  // Rows may have made their step, but nothing comes of the number.
  const std::vector<float> before = AllFloats(c);
  const std::vector<float> after = AllFloats(tried);
  for (size_t i = 0; i < before.size(); ++i) {
    ASSERT_EQ(std::isfinite(after[i]), std::isfinite(before[i])) << i;
  }
  EXPECT_TRUE(SameBits(ParameterFloats(tried), ParameterFloats(c)));
  EXPECT_EQ(tried.parameters.steps, 0);
}

// Noticed on every instruction set, named, and gets nowhere.
TEST_P(OracleTest, NumbersThatAreNotFiniteStopTheStep) {
  for (const bool dynamic : {false, true}) {
    for (const Loss loss : kLosses) {
      for (const Negatives negatives : {Negatives::kBatchAndUniform, Negatives::kAll}) {
        StepOptions options;
        options.comparator = GetParam();
        options.dynamic = dynamic;
        options.loss = loss;
        options.negatives = negatives;
        options.op = Operator::kDiagonal;
        options.global_emb = true;
        options.num_entities = 50;
        options.dimension = 20;
        SCOPED_TRACE(options.Name());
        for (const Origin origin : kOrigins) {
          for (const float bad :
               {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                -std::numeric_limits<float>::infinity()}) {
            SCOPED_TRACE(absl::StrCat("origin ", static_cast<int>(origin), ": ", bad));
            StepCase c = DrawStepCase(options, 1);
            NumberOf(origin, c) = bad;
            ForEveryTarget([&](const BatchStepFactory& fused) { ExpectRefused(c, fused); });
            SCOPED_TRACE("reference in float32");
            ExpectRefused(c, nn::ReferenceFactory());
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Comparators, OracleTest, ::testing::ValuesIn(kComparators),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace weft
