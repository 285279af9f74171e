#include "services/trainer/fused/row_transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "services/common/random.h"
#include "services/trainer/kernels/cpu.h"
#include "services/trainer/model/model_parameters.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

constexpr Comparator kComparators[] = {Comparator::kDot, Comparator::kCos, Comparator::kL2,
                                       Comparator::kSquaredL2};

ModelSpec Spec(Operator op, Comparator comparator, int dimension, int64_t num_dynamic_relations) {
  ModelSpec spec;
  spec.entity_types = {{"user", dimension}, {"item", dimension}};
  spec.relations.push_back({.name = "likes", .lhs = 0, .rhs = 1, .op = op, .operator_name = "?"});
  spec.num_dynamic_relations = num_dynamic_relations;
  spec.comparator = comparator;
  spec.comparator_name = "?";
  spec.global_emb = false;
  return spec;
}

std::vector<float> Draw(int64_t n, uint64_t seed) {
  RandomStream random(seed, RandomUse::kTest);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) x = random.Normal();
  return values;
}

std::vector<float> Transform(const ModelSpec& spec, const ParameterSet& parameters, Side side,
                             RowRole role, std::vector<float> row, RelationTypeId relation = 0) {
  const auto transform = RowTransform::Make(spec, parameters, relation, side, role);
  EXPECT_THAT(transform, IsOk());
  const auto dim = static_cast<int64_t>(row.size());
  transform->Apply(1, row.data(), dim, row.data(), dim);
  return row;
}

TEST(RowTransformTest, StaticOperatorActsOnTheRightHandSideWhateverItsRole) {
  const ModelSpec spec = Spec(Operator::kTranslation, Comparator::kDot, 2, 0);
  ParameterSet parameters = MakeInitialParameters(spec);
  parameters.Find("relations/0/operator/rhs/translation")->values.row(0)[1] = 5;

  for (const RowRole role : {RowRole::kQuery, RowRole::kCandidate}) {
    EXPECT_THAT(Transform(spec, parameters, Side::kRhs, role, {1, 2}), ElementsAre(1, 7));
    EXPECT_THAT(Transform(spec, parameters, Side::kLhs, role, {1, 2}), ElementsAre(1, 2));
  }
}

TEST(RowTransformTest, DynamicOperatorActsOnTheQueryWithTheParametersOfItsSide) {
  const ModelSpec spec = Spec(Operator::kDiagonal, Comparator::kDot, 2, 3);
  ParameterSet parameters = MakeInitialParameters(spec);
  parameters.Find("relations/0/operator/lhs/diagonals")->values.row(2)[0] = 10;
  parameters.Find("relations/0/operator/rhs/diagonals")->values.row(2)[1] = 100;

  EXPECT_THAT(Transform(spec, parameters, Side::kLhs, RowRole::kQuery, {1, 2}, 2),
              ElementsAre(10, 2));
  EXPECT_THAT(Transform(spec, parameters, Side::kRhs, RowRole::kQuery, {1, 2}, 2),
              ElementsAre(1, 200));
  EXPECT_THAT(Transform(spec, parameters, Side::kLhs, RowRole::kCandidate, {1, 2}, 2),
              ElementsAre(1, 2));
  EXPECT_THAT(Transform(spec, parameters, Side::kLhs, RowRole::kQuery, {1, 2}, 1),
              ElementsAre(1, 2));
}

TEST(RowTransformTest, EveryOperatorComputesItsFormula) {
  struct Case {
    Operator op;
    std::vector<std::pair<std::string, std::vector<float>>> parameters;
    std::vector<float> expected;
  };
  const Case cases[] = {
      {Operator::kNone, {}, {1, 2}},
      {Operator::kTranslation, {{"translation", {10, 20}}}, {11, 22}},
      {Operator::kDiagonal, {{"diagonal", {3, 4}}}, {3, 8}},
      {Operator::kLinear, {{"linear_transformation", {1, 2, 3, 4}}}, {5, 11}},
      {Operator::kAffine,
       {{"linear_transformation", {1, 2, 3, 4}}, {"translation", {10, 20}}},
       {15, 31}},
      // (1 + 2i)(3 + 4i) = -5 + 10i
      {Operator::kComplexDiagonal, {{"real", {3}}, {"imag", {4}}}, {-5, 10}},
  };
  for (const Case& c : cases) {
    const ModelSpec spec = Spec(c.op, Comparator::kDot, 2, 0);
    ParameterSet parameters = MakeInitialParameters(spec);
    for (const auto& [name, values] : c.parameters) {
      std::ranges::copy(values, parameters.Find("relations/0/operator/rhs/" + name)->values.data());
    }

    EXPECT_THAT(Transform(spec, parameters, Side::kRhs, RowRole::kCandidate, {1, 2}),
                Pointwise(::testing::FloatEq(), c.expected));
  }
}

TEST(RowTransformTest, MaxNormThenGlobalEmbeddingThenCosine) {
  ModelSpec spec = Spec(Operator::kNone, Comparator::kCos, 2, 0);
  spec.max_norm = 5;
  spec.global_emb = true;
  ParameterSet parameters = MakeInitialParameters(spec);
  parameters.Find("entities/user/global_embedding")->values.row(0)[0] = 1;

  // (6, 8) has norm 10, becomes (3, 4), then (4, 4), then of length 1.
  EXPECT_THAT(Transform(spec, parameters, Side::kLhs, RowRole::kQuery, {6, 8}),
              Pointwise(FloatNear(1e-6f), {std::sqrt(0.5f), std::sqrt(0.5f)}));
}

TEST(RowTransformTest, CosineOfZeroIsZeroAndOfTinyAndHugeRowsIsRight) {
  const ModelSpec spec = Spec(Operator::kNone, Comparator::kCos, 2, 0);
  const ParameterSet parameters = MakeInitialParameters(spec);
  const auto cosine = [&](float x, float y) {
    return Transform(spec, parameters, Side::kLhs, RowRole::kQuery, {x, y});
  };

  EXPECT_THAT(cosine(0, 0), ElementsAre(0, 0));
  EXPECT_THAT(cosine(3e-30f, 4e-30f), Pointwise(FloatNear(1e-6f), {0.6f, 0.8f}));
  EXPECT_THAT(cosine(3e30f, 4e30f), Pointwise(FloatNear(1e-6f), {0.6f, 0.8f}));
  EXPECT_THAT(cosine(3e-44f, 4e-44f), Pointwise(FloatNear(0.05f), {0.6f, 0.8f}));
}

TEST(RowTransformTest, BiasIsNotNormalized) {
  ModelSpec spec = Spec(Operator::kNone, Comparator::kCos, 3, 0);
  spec.bias = true;
  const ParameterSet parameters = MakeInitialParameters(spec);

  EXPECT_THAT(Transform(spec, parameters, Side::kLhs, RowRole::kQuery, {7, 3, 4}),
              Pointwise(FloatNear(1e-6f), {7.0f, 0.6f, 0.8f}));
}

TEST(RowTransformTest, ResultDoesNotDependOnThePositionOfTheRow) {
  for (const int dim : {6, 50, 100, 128}) {
    for (const Operator op : {Operator::kNone, Operator::kAffine, Operator::kComplexDiagonal}) {
      const ModelSpec spec = Spec(op, Comparator::kCos, dim, 0);
      ParameterSet parameters = MakeInitialParameters(spec);
      for (Parameter& p : parameters.all()) {
        std::ranges::copy(Draw(p.size(), 7), p.values.data());
      }
      const auto transform =
          RowTransform::Make(spec, parameters, 0, Side::kRhs, RowRole::kCandidate);
      ASSERT_THAT(transform, IsOk());
      const std::vector<float> rows = Draw(150 * dim, 3);
      std::vector<float> together(rows.size());
      transform->Apply(150, rows.data(), dim, together.data(), dim);

      for (int64_t i = 0; i < 150; ++i) {
        std::vector<float> alone(static_cast<size_t>(dim));
        transform->Apply(1, rows.data() + i * dim, dim, alone.data(), dim);
        for (int64_t k = 0; k < dim; ++k) {
          ASSERT_EQ(std::bit_cast<uint32_t>(alone[k]),
                    std::bit_cast<uint32_t>(together[i * dim + k]))
              << "dimension " << dim << ", row " << i;
        }
      }
    }
  }
}

TEST(RowTransformTest, RefusesWhatIsNotBuiltInAndSaysWhatToDo) {
  const ModelSpec custom = Spec(Operator::kCustom, Comparator::kDot, 2, 0);
  EXPECT_THAT(RowTransform::Make(custom, ParameterSet(), 0, Side::kRhs, RowRole::kQuery),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("compute: reference")));
  EXPECT_THAT(TileScorer::Make(Spec(Operator::kNone, Comparator::kCustom, 2, 0), 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("compute: reference")));
}

TEST(RowTransformTest, RefusesParametersOfAnotherModel) {
  const ModelSpec spec = Spec(Operator::kDiagonal, Comparator::kDot, 4, 0);
  EXPECT_THAT(RowTransform::Make(spec, ParameterSet(), 0, Side::kRhs, RowRole::kQuery),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("relations/0/operator/rhs/diagonal")));
  const ParameterSet other =
      MakeInitialParameters(Spec(Operator::kDiagonal, Comparator::kDot, 6, 0));
  EXPECT_THAT(RowTransform::Make(spec, other, 0, Side::kRhs, RowRole::kQuery),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("1 x 6")));
  EXPECT_THAT(RowTransform::Make(spec, other, 3, Side::kRhs, RowRole::kQuery),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("relations 0 to 0")));
}

double PlainScore(const ModelSpec& spec, const float* a, const float* b, int dim) {
  const int skip = spec.bias ? 1 : 0;
  double dot = 0;
  double d2 = 0;
  for (int k = skip; k < dim; ++k) {
    dot += double{a[k]} * b[k];
    d2 += (double{a[k]} - b[k]) * (double{a[k]} - b[k]);
  }
  double score = dot;
  if (spec.comparator == Comparator::kL2) score = -std::sqrt(std::max(d2, 1e-30));
  if (spec.comparator == Comparator::kSquaredL2) score = -d2;
  return spec.bias ? score + a[0] + b[0] : score;
}

TEST(TileScorerTest, ScoresEveryComparator) {
  for (const Comparator comparator : kComparators) {
    for (const bool bias : {false, true}) {
      ModelSpec spec = Spec(Operator::kNone, comparator, 20, 0);
      spec.bias = bias;
      auto scorer = TileScorer::Make(spec, 20);
      ASSERT_THAT(scorer, IsOk());
      const std::vector<float> queries = Draw(5 * 20, 1);
      const std::vector<float> candidates = Draw(30 * 20, 2);
      std::vector<float> scores(TileScorer::kQueries * TileScorer::kCandidates);
      scorer->SetCandidates(30, candidates.data(), 20);
      scorer->Score(5, queries.data(), 20, scores.data());

      for (int i = 0; i < 5; ++i) {
        for (int j = 0; j < 30; ++j) {
          EXPECT_NEAR(scores[i * TileScorer::kCandidates + j],
                      PlainScore(spec, &queries[i * 20], &candidates[j * 20], 20), 1e-4);
        }
      }
    }
  }
}

TEST(TileScorerTest, EqualRowsAreAtNoDistance) {
  const std::vector<float> row = Draw(50, 1);
  for (const Comparator comparator : {Comparator::kL2, Comparator::kSquaredL2}) {
    auto scorer = TileScorer::Make(Spec(Operator::kNone, comparator, 50, 0), 50);
    ASSERT_THAT(scorer, IsOk());
    std::vector<float> scores(TileScorer::kQueries * TileScorer::kCandidates);
    scorer->SetCandidates(1, row.data(), 50);
    scorer->Score(1, row.data(), 50, scores.data());

    EXPECT_EQ(scores[0], comparator == Comparator::kL2 ? -1e-15f : 0.0f);
  }
}

// Ranks are compared to the bit: a score may depend on nothing but its two rows.
TEST(TileScorerTest, ScoreDoesNotDependOnThePositionInTheTile) {
  for (const Comparator comparator : kComparators) {
    for (const int dim : {50, 100, 200, 400}) {
      auto scorer = TileScorer::Make(Spec(Operator::kNone, comparator, dim, 0), dim);
      ASSERT_THAT(scorer, IsOk());
      const int64_t n = TileScorer::kCandidates;
      std::vector<float> candidates = Draw(n * dim, 2);
      // The same rows once more in another order, shifted by a number that is no multiple of 16.
      std::vector<float> shifted = candidates;
      std::ranges::rotate(shifted, shifted.begin() + 333 * dim);
      std::vector<float> queries = Draw(TileScorer::kQueries * dim, 1);
      std::vector<float> moved = queries;
      std::ranges::rotate(moved, moved.begin() + 13 * dim);
      std::vector<float> a(static_cast<size_t>(TileScorer::kQueries * n));
      std::vector<float> b(a.size());
      std::vector<float> few(a.size());
      scorer->SetCandidates(n, candidates.data(), dim);
      scorer->Score(TileScorer::kQueries, queries.data(), dim, a.data());
      scorer->SetCandidates(n, shifted.data(), dim);
      scorer->Score(TileScorer::kQueries, moved.data(), dim, b.data());
      scorer->SetCandidates(7, candidates.data(), dim);
      scorer->Score(1, queries.data(), dim, few.data());

      for (int64_t i = 0; i < TileScorer::kQueries; ++i) {
        const int64_t to_i = (i + TileScorer::kQueries - 13) % TileScorer::kQueries;
        for (int64_t j = 0; j < n; ++j) {
          const int64_t to_j = (j + n - 333) % n;
          ASSERT_EQ(std::bit_cast<uint32_t>(a[i * n + j]),
                    std::bit_cast<uint32_t>(b[to_i * n + to_j]))
              << "dimension " << dim << " at " << i << ", " << j;
        }
      }
      for (int64_t j = 0; j < 7; ++j) ASSERT_EQ(a[j], few[j]);
    }
  }
}

}  // namespace
}  // namespace weft
