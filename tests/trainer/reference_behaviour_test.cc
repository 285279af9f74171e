// What the reference does at the edges: zero and equal vectors, no negatives, max_norm, numbers
// that are not finite, arguments that do not fit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/changed_rows.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/nn/reference_factory.h"
#include "tests/testing/status_matchers.h"
#include "tests/trainer/reference_step_case.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::AllFloats;
using ::weft::testing::DrawStepCase;
using ::weft::testing::IsOk;
using ::weft::testing::kLosses;
using ::weft::testing::kOperators;
using ::weft::testing::NameOf;
using ::weft::testing::Negatives;
using ::weft::testing::SameBits;
using ::weft::testing::StatusIs;
using ::weft::testing::StepCase;
using ::weft::testing::StepOptions;

std::unique_ptr<BatchStep> MakeStep(StepCase& c, nn::Precision precision = nn::Precision::kDouble) {
  auto step = nn::ReferenceFactory(precision).Make(c.spec, &c.parameters);
  EXPECT_THAT(step, IsOk());
  return *std::move(step);
}

BatchScores ScoresOf(StepCase& c, nn::Precision precision = nn::Precision::kDouble) {
  BatchScores scores;
  EXPECT_THAT(MakeStep(c, precision)->Score(c.batch(), c.negatives, c.tables(), &scores), IsOk());
  return scores;
}

BatchGradients GradientsOf(StepCase& c) {
  auto gradients = MakeStep(c)->Gradients(c.batch(), c.negatives, c.tables());
  EXPECT_THAT(gradients, IsOk());
  return *std::move(gradients);
}

std::vector<float> GradientOfRow(const BatchGradients::Rows& rows, EntityOffset row, int64_t d) {
  const auto found = std::ranges::find(rows.offsets, row);
  EXPECT_NE(found, rows.offsets.end());
  const auto first = rows.values.begin() + (found - rows.offsets.begin()) * d;
  return {first, first + d};
}

StepCase OneEdge(Comparator comparator, std::vector<float> lhs, std::vector<float> rhs) {
  StepOptions options;
  options.comparator = comparator;
  options.dimension = static_cast<int>(lhs.size());
  options.num_edges = 1;
  options.num_uniform_negs = 1;
  options.num_entities = 2;
  StepCase c = DrawStepCase(options, 1);
  c.lhs = {0};
  c.rhs = {0};
  c.negatives = {{1}, {1}};
  std::ranges::copy(lhs, c.lhs_partition.embeddings.row(0).begin());
  std::ranges::copy(rhs, c.rhs_partition.embeddings.row(0).begin());
  return c;
}

TEST(ReferenceComparatorTest, CosOfAZeroVectorIsZeroAndSoIsItsGradient) {
  StepCase c = OneEdge(Comparator::kCos, {0, 0, 0}, {1, 2, 3});

  EXPECT_THAT(ScoresOf(c).lhs_pos, ElementsAre(0));
  const BatchGradients gradients = GradientsOf(c);
  EXPECT_THAT(GradientOfRow(gradients.lhs, 0, 3), Each(0));
  EXPECT_THAT(gradients.rhs.values,
              Each(::testing::Truly([](float x) { return std::isfinite(x); })));
}

TEST(ReferenceComparatorTest, L2OfEqualVectorsHasNoGradient) {
  StepCase c = OneEdge(Comparator::kL2, {1, 2, 3}, {1, 2, 3});
  c.spec.disable_lhs_negs = true;
  c.spec.disable_rhs_negs = true;
  c.spec.loss = Loss::kLogistic;
  c.negatives = {};

  EXPECT_FLOAT_EQ(ScoresOf(c).lhs_pos[0], -1e-15f);
  EXPECT_THAT(GradientOfRow(GradientsOf(c).lhs, 0, 3), Each(0));
}

TEST(ReferenceComparatorTest, DistancesOfCloseVectorsDoNotCancel) {
  for (const Comparator comparator : {Comparator::kL2, Comparator::kSquaredL2}) {
    StepCase c = OneEdge(comparator, {1000, 2000}, {1000.0625f, 2000});
    std::ranges::copy(c.lhs_partition.embeddings.row(0), c.lhs_partition.embeddings.row(1).begin());
    const float expected = comparator == Comparator::kL2 ? -0.0625f : -0.0625f * 0.0625f;

    const BatchScores scores = ScoresOf(c, nn::Precision::kFloat);

    EXPECT_FLOAT_EQ(scores.lhs_pos[0], expected);
    EXPECT_EQ(scores.lhs_neg[1], scores.lhs_pos[0]);  // an equal vector, scored as a negative
  }
}

TEST(ReferenceScoresTest, CandidatesAreTheChunksPositivesThenItsSamples) {
  StepOptions options;
  options.num_edges = 4;
  options.chunk_size = 3;
  options.num_uniform_negs = 1;
  options.dimension = 1;
  options.num_entities = 6;
  StepCase c = DrawStepCase(options, 1);
  c.lhs = {0, 1, 2, 3};
  c.rhs = {0, 0, 0, 0};
  c.negatives = {{4, 5}, {1, 2}};
  for (int i = 0; i < 6; ++i) c.lhs_partition.embeddings.row(i)[0] = static_cast<float>(10 + i);
  c.rhs_partition.embeddings.row(0)[0] = 1;

  const BatchScores scores = ScoresOf(c);

  EXPECT_EQ(scores.lhs_num_neg, 4);
  EXPECT_THAT(scores.lhs_neg, ElementsAre(-1e9f, 11, 12, 14,  //
                                          10, -1e9f, 12, 14,  //
                                          10, 11, -1e9f, 14,  //
                                          -1e9f, -1e9f, -1e9f, 15));
}

TEST(ReferenceScoresTest, AllNegativesAreTheWholeTableButTheOwnEntity) {
  StepOptions options;
  options.negatives = Negatives::kAll;
  options.num_edges = 2;
  options.dimension = 1;
  options.num_entities = 3;
  StepCase c = DrawStepCase(options, 1);
  c.lhs = {0, 2};
  c.rhs = {0, 0};
  for (int i = 0; i < 3; ++i) c.lhs_partition.embeddings.row(i)[0] = static_cast<float>(10 + i);
  c.rhs_partition.embeddings.row(0)[0] = 1;

  EXPECT_THAT(ScoresOf(c).lhs_neg, ElementsAre(-1e9f, 11, 12, 10, 11, -1e9f));
}

TEST(ReferenceScoresTest, ScoringWritesNothing) {
  StepOptions options;
  options.op = Operator::kAffine;
  StepCase c = DrawStepCase(options, 1);
  const std::vector<float> before = AllFloats(c);

  ScoresOf(c);

  EXPECT_EQ(AllFloats(c), before);
}

TEST(ReferenceLossTest, WithoutAnyNegativesOnlyLogisticLearnsFromPositives) {
  for (const Loss loss : kLosses) {
    SCOPED_TRACE(NameOf(loss));
    StepOptions options;
    options.loss = loss;
    StepCase c = DrawStepCase(options, 1);
    c.spec.disable_lhs_negs = true;
    c.spec.disable_rhs_negs = true;
    c.negatives = {};
    const std::vector<float> before = AllFloats(c);

    const auto stats = MakeStep(c)->Train(c.batch(), c.negatives, c.tables());

    ASSERT_THAT(stats, IsOk());
    if (loss == Loss::kLogistic) {
      double expected = 0;
      StepCase again = DrawStepCase(options, 1);
      again.spec = c.spec;
      again.negatives = {};
      for (const float pos : ScoresOf(again).lhs_pos) expected += 2 * std::log1p(std::exp(-pos));
      EXPECT_NEAR(stats->loss, expected, 1e-5 * expected);
      EXPECT_NE(AllFloats(c), before);
    } else {
      EXPECT_EQ(stats->loss, 0);
      EXPECT_EQ(AllFloats(c), before);
    }
  }
}

TEST(ReferenceMaxNormTest, RowsOfTheBatchAreScaledInTheTableBeforeTheyAreUsed) {
  StepOptions options;
  options.max_norm = 0.5f;
  options.global_emb = true;
  options.num_entities = 30;  // more than a batch touches
  StepCase limited = DrawStepCase(options, 1);
  StepCase scaled = limited.Clone();
  scaled.spec.max_norm = 0;
  const StepCase before = limited.Clone();

  const BatchGradients gradients = GradientsOf(limited);

  int num_scaled = 0;
  for (int64_t row = 0; row < 30; ++row) {
    double norm = 0;
    for (const float x : before.lhs_partition.embeddings.row(row)) norm += double{x} * x;
    norm = std::sqrt(norm);
    const bool touched =
        std::ranges::binary_search(gradients.lhs.offsets, static_cast<EntityOffset>(row));
    const double factor = touched && norm > 0.5 ? 0.5 / (norm + 1e-7) : 1;
    num_scaled += factor != 1;
    for (int k = 0; k < options.dimension; ++k) {
      EXPECT_FLOAT_EQ(limited.lhs_partition.embeddings.row(row)[k],
                      factor * before.lhs_partition.embeddings.row(row)[k]);
    }
  }
  EXPECT_GT(num_scaled, 3);
  EXPECT_LT(num_scaled, 30);
  // The gradient is the scaled rows' own.
  for (const Side side : kSides) {
    scaled.partition(side).embeddings = limited.partition(side).embeddings.Clone();
  }
  const BatchGradients expected = GradientsOf(scaled);
  EXPECT_EQ(gradients.lhs.values, expected.lhs.values);
  EXPECT_EQ(gradients.rhs.values, expected.rhs.values);
}

TEST(ReferenceNonFiniteTest, AScoreThatIsNotFiniteStopsTheStepAndNamesTheRelation) {
  for (const bool dynamic : {false, true}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      StepOptions options;
      options.dynamic = dynamic;
      options.op = Operator::kComplexDiagonal;
      options.num_edges = 1;
      StepCase c = DrawStepCase(options, 1);
      c.lhs_partition.embeddings.row(c.lhs[0])[1] = bad;
      const std::vector<float> before = AllFloats(c);

      const auto stats = MakeStep(c)->Train(c.batch(), c.negatives, c.tables());

      const std::string name = dynamic ? absl::StrCat("relation ", c.rel[0]) : "relation 1 (likes)";
      EXPECT_THAT(stats, StatusIs(absl::StatusCode::kOutOfRange,
                                  AllOf(HasSubstr(name), HasSubstr("not finite"))));
      EXPECT_TRUE(SameBits(AllFloats(c), before));
      EXPECT_EQ(c.parameters.steps, 0);
    }
  }
}

TEST(ReferenceNonFiniteTest, AGradientThatIsNotFiniteStopsTheStepBeforeAnythingIsWritten) {
  StepOptions options;
  options.weights = true;
  StepCase c = DrawStepCase(options, 1);
  std::ranges::fill(c.weight, 3e38f);
  for (float& x : c.rhs_partition.embeddings.span()) x = x * 64;
  const std::vector<float> before = AllFloats(c);

  const auto stats = MakeStep(c, nn::Precision::kFloat)->Train(c.batch(), c.negatives, c.tables());

  EXPECT_THAT(stats, StatusIs(absl::StatusCode::kOutOfRange,
                              AllOf(HasSubstr("relation 1 (likes)"), HasSubstr("gradient"))));
  EXPECT_EQ(AllFloats(c), before);
}

TEST(ReferenceArgumentsTest, SamplesAndOffsetsThatDoNotFitAreErrors) {
  StepCase few = DrawStepCase({}, 1);
  few.negatives.lhs.pop_back();
  EXPECT_THAT(MakeStep(few)->Train(few.batch(), few.negatives, few.tables()),
              StatusIs(absl::StatusCode::kInternal));

  for (const EntityOffset bad : {-1, 7}) {
    StepCase outside = DrawStepCase({}, 1);
    outside.lhs[0] = bad;
    EXPECT_THAT(MakeStep(outside)->Train(outside.batch(), outside.negatives, outside.tables()),
                StatusIs(absl::StatusCode::kInternal));
  }
}

TEST(ReferenceFactoryTest, MakesTheBuiltInParameters) {
  for (const Operator op : kOperators) {
    for (const bool dynamic : {false, true}) {
      StepOptions options;
      options.op = op;
      options.dynamic = dynamic;
      options.global_emb = true;
      SCOPED_TRACE(options.Name());
      const ModelSpec spec = DrawStepCase(options, 1).spec;
      const ParameterSet expected = MakeInitialParameters(spec);

      const auto parameters = nn::ReferenceFactory().MakeParameters(spec);

      ASSERT_THAT(parameters, IsOk());
      ASSERT_EQ(parameters->all().size(), expected.all().size());
      for (size_t i = 0; i < expected.all().size(); ++i) {
        const Parameter& a = parameters->all()[i];
        const Parameter& b = expected.all()[i];
        EXPECT_EQ(a.name, b.name);
        EXPECT_EQ(a.shape, b.shape);
        EXPECT_EQ(a.values.rows(), b.values.rows());
        EXPECT_TRUE(std::ranges::equal(a.values.span(), b.values.span())) << a.name;
      }
    }
  }
}

TEST(ReferenceFactoryTest, RefusesParametersOfAnotherModel) {
  StepOptions options;
  options.op = Operator::kDiagonal;
  const ModelSpec spec = DrawStepCase(options, 1).spec;
  ParameterSet none;
  EXPECT_THAT(nn::ReferenceFactory().Make(spec, &none),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("relations/0/operator/rhs/diagonal is missing")));

  options.dimension = 8;
  StepCase larger = DrawStepCase(options, 1);
  EXPECT_THAT(nn::ReferenceFactory().Make(spec, &larger.parameters),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("has shape 1 x 8, the model needs 1 x 6")));
}

TEST(ReferenceFactoryTest, RefusesNamesThatNobodyRegistered) {
  StepCase c = DrawStepCase({}, 1);
  c.spec.relations[1].op = Operator::kCustom;
  c.spec.relations[1].operator_name = "roation";
  EXPECT_THAT(nn::ReferenceFactory().MakeParameters(c.spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("relations[1].operator"), HasSubstr("'roation'"),
                             HasSubstr("complex_diagonal"))));
  c = DrawStepCase({}, 1);
  c.spec.loss = Loss::kCustom;
  c.spec.loss_name = "hinge";
  EXPECT_THAT(nn::ReferenceFactory().Make(c.spec, &c.parameters),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("loss_fn: 'hinge'")));
}

TEST(ReferenceBehaviourTest, RowsThatChangeAreMarked) {
  StepOptions options;
  options.op = Operator::kTranslation;
  options.dynamic = true;
  options.global_emb = true;
  options.num_entities = 40;
  StepCase c = DrawStepCase(options, 1);
  const StepCase before = c.Clone();
  for (Parameter& p : c.parameters.all()) {
    p.changed.assign(static_cast<size_t>(p.values.rows()), 0);
  }
  ChangedRows changed[2] = {ChangedRows(40), ChangedRows(40)};
  BatchTables tables = c.tables();
  tables.lhs.changed = changed[0].data();
  tables.rhs.changed = changed[1].data();

  ASSERT_THAT(MakeStep(c)->Train(c.batch(), c.negatives, tables), IsOk());

  // A row may be marked though its gradient was too small to move it, but none is missed.
  auto missed = [](const FloatBlock& now, const FloatBlock& then, const ChangedRows& marks) {
    int64_t count = 0;
    for (int64_t row = 0; row < now.rows(); ++row) {
      count +=
          !std::ranges::equal(now.row(row), then.row(row)) && marks[static_cast<size_t>(row)] == 0;
    }
    return count;
  };
  EXPECT_EQ(missed(c.lhs_partition.embeddings, before.lhs_partition.embeddings, changed[0]), 0);
  EXPECT_EQ(missed(c.rhs_partition.embeddings, before.rhs_partition.embeddings, changed[1]), 0);
  EXPECT_GT(std::ranges::count(changed[0], 1), 0);
  EXPECT_LT(std::ranges::count(changed[0], 1), 40);
  for (size_t i = 0; i < c.parameters.all().size(); ++i) {
    const Parameter& p = c.parameters.all()[i];
    EXPECT_EQ(missed(p.values, before.parameters.all()[i].values, p.changed), 0) << p.name;
    EXPECT_GT(std::ranges::count(p.changed, 1), 0) << p.name;
  }
}

}  // namespace
}  // namespace weft
