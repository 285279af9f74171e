#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/trainer/kernels/loss_ops.h"
#include "tests/trainer/kernels_testing.h"

namespace weft {
namespace {

using ::weft::testing::ForEveryTarget;
using ::weft::testing::OwnedRows;

enum class Kind { kRanking, kLogistic, kSoftmax };
constexpr Kind kKinds[] = {Kind::kRanking, Kind::kLogistic, Kind::kSoftmax};
constexpr float kMargin = 0.3f;
constexpr float kNegativeWeight = 0.25f;

// A tile of `negatives` x `queries` scores with everything that a loss wants.
struct Problem {
  Problem(int64_t negatives, int64_t queries, uint64_t seed)
      : scores(negatives, queries, seed), grads(negatives, queries), vectors(4, queries, seed + 1) {
    for (int64_t i = 0; i < queries; ++i) {
      weight()[i] = 0.5f + static_cast<float>(i % 3);
      pos_grad()[i] = loss()[i] = 0;
    }
  }
  float* pos() const { return vectors.row(0); }
  float* weight() const { return vectors.row(1); }
  float* pos_grad() const { return vectors.row(2); }
  float* loss() const { return vectors.row(3); }
  LossTile tile() const {
    return {scores.tile(), grads.tile(), pos(), weight(), pos_grad(), loss()};
  }

  OwnedRows scores;
  OwnedRows grads;
  OwnedRows vectors;
};

int64_t Apply(Kind kind, const Problem& p) {
  switch (kind) {
    case Kind::kRanking:
      return RankingLoss(p.tile(), kMargin);
    case Kind::kLogistic:
      return LogisticLoss(p.tile(), kNegativeWeight);
    case Kind::kSoftmax:
      break;
  }
  return SoftmaxLoss(p.tile());
}

double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// The loss of query i in double precision, its gradients of the negatives and of the positive.
double PlainLoss(Kind kind, const Problem& p, int64_t i, std::vector<double>* grads,
                 double* pos_grad) {
  const int64_t n = p.scores.block().rows;
  const double w = p.weight()[i];
  const double pos = p.pos()[i];
  grads->assign(static_cast<size_t>(n), 0);
  *pos_grad = 0;
  double loss = 0;
  if (kind == Kind::kSoftmax) {
    double top = -HUGE_VAL;
    for (int64_t j = 0; j < n; ++j) top = std::max<double>(top, p.scores.at(j, i));
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += std::exp(p.scores.at(j, i) - top);
    const double x = top + std::log(sum) - pos;
    const double slope = 1 / (1 + std::exp(-x));
    for (int64_t j = 0; j < n; ++j) {
      (*grads)[j] = w * slope * std::exp(p.scores.at(j, i) - top) / sum;
    }
    *pos_grad = -w * slope;
    return w * Softplus(x);
  }
  for (int64_t j = 0; j < n; ++j) {
    const double s = p.scores.at(j, i);
    if (kind == Kind::kRanking) {
      const double term = kMargin - pos + s;
      loss += w * std::max(term, 0.0);
      (*grads)[j] = term >= 0 ? w : 0;
      *pos_grad -= (*grads)[j];
    } else {
      loss += w * kNegativeWeight * Softplus(s);
      (*grads)[j] = w * kNegativeWeight / (1 + std::exp(-s));
    }
  }
  return loss;
}

TEST(LossOpsTest, LossesAndGradientsAreTheFormulas) {
  ForEveryTarget([] {
    for (const Kind kind : kKinds) {
      for (const auto& [negatives, queries] :
           {std::pair{1, 1}, {100, 50}, {7, 3}, {31, 16}, {5, 17}, {20, 100}}) {
        SCOPED_TRACE(
            absl::StrCat("kind ", static_cast<int>(kind), ": ", negatives, " x ", queries));
        const Problem p(negatives, queries, 1);
        const int64_t violators = Apply(kind, p);
        int64_t expected_violators = 0;
        for (int64_t i = 0; i < queries; ++i) {
          std::vector<double> grads;
          double pos_grad = 0;
          EXPECT_NEAR(p.loss()[i], PlainLoss(kind, p, i, &grads, &pos_grad), 1e-4);
          EXPECT_NEAR(p.pos_grad()[i], pos_grad, 1e-5);
          for (int64_t j = 0; j < negatives; ++j) {
            ASSERT_NEAR(p.grads.at(j, i), grads[j], 1e-6);
            expected_violators += p.scores.at(j, i) > p.pos()[i];
          }
        }
        EXPECT_EQ(violators, expected_violators);
      }
    }
  });
}

TEST(LossOpsTest, GradientsMayReplaceTheScores) {
  ForEveryTarget([] {
    for (const Kind kind : kKinds) {
      const Problem apart(20, 50, 1);
      const Problem in_place(20, 50, 1);
      Apply(kind, apart);
      LossTile tile = in_place.tile();
      tile.grads = tile.scores;
      kind == Kind::kRanking    ? RankingLoss(tile, kMargin)
      : kind == Kind::kLogistic ? LogisticLoss(tile, kNegativeWeight)
                                : SoftmaxLoss(tile);
      for (int64_t j = 0; j < 20; ++j) {
        for (int64_t i = 0; i < 50; ++i) ASSERT_EQ(in_place.scores.at(j, i), apart.grads.at(j, i));
      }
    }
  });
}

TEST(LossOpsTest, MaskedScoresHaveNoLossAndNoGradient) {
  ForEveryTarget([] {
    for (const Kind kind : kKinds) {
      const Problem p(3, 20, 1);
      for (int64_t i = 0; i < 20; ++i) p.scores.at(1, i) = kMaskedScore;
      Apply(kind, p);
      for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(p.grads.at(1, i), 0);

      const Problem only(1, 20, 1);
      for (int64_t i = 0; i < 20; ++i) only.scores.at(0, i) = kMaskedScore;
      EXPECT_EQ(Apply(kind, only), 0);
      for (int64_t i = 0; i < 20; ++i) {
        EXPECT_EQ(only.loss()[i], 0);
        EXPECT_EQ(only.pos_grad()[i], 0);
      }
    }
  });
}

TEST(LossOpsTest, LargeScoresNeitherOverflowNorVanish) {
  ForEveryTarget([] {
    const Problem p(2, 2, 1);
    p.scores.at(0, 0) = 1e30f;
    p.scores.at(1, 0) = -1e30f;
    p.scores.at(0, 1) = -1e30f;
    p.scores.at(1, 1) = -1e30f;
    p.pos()[0] = 0;
    p.pos()[1] = 3;
    p.weight()[0] = p.weight()[1] = 1;
    SoftmaxLoss(p.tile());
    EXPECT_EQ(p.loss()[0], 1e30f);
    EXPECT_EQ(p.grads.at(0, 0), 1);
    EXPECT_EQ(p.grads.at(1, 0), 0);
    EXPECT_EQ(p.pos_grad()[0], -1);
    EXPECT_EQ(p.loss()[1], 0);
    EXPECT_EQ(p.pos_grad()[1], 0);
  });
}

// Highway's Exp(NaN) is 0, its Max and Log hide NaN: nothing may.
TEST(LossOpsTest, ScoresThatAreNotFiniteAreNeverHidden) {
  ForEveryTarget([] {
    for (const Kind kind : kKinds) {
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
            -std::numeric_limits<float>::infinity()}) {
        for (int64_t i = 0; i < 20; ++i) {
          const Problem score(5, 20, 1);
          score.scores.at(2, i) = bad;
          Apply(kind, score);
          const Problem pos(5, 20, 1);
          pos.pos()[i] = bad;
          Apply(kind, pos);
          for (int64_t q = 0; q < 20; ++q) {
            EXPECT_EQ(std::isfinite(score.loss()[q]), q != i) << "kind " << static_cast<int>(kind);
            EXPECT_EQ(std::isfinite(pos.loss()[q]), q != i) << "kind " << static_cast<int>(kind);
          }
        }
      }
    }
  });
}

TEST(LossOpsTest, LogisticPositivesAreTheFormula) {
  ForEveryTarget([] {
    const Problem p(1, 19, 1);
    LogisticPositives(19, p.pos(), p.weight(), p.pos_grad(), p.loss());
    for (int64_t i = 0; i < 19; ++i) {
      EXPECT_NEAR(p.loss()[i], p.weight()[i] * Softplus(-p.pos()[i]), 1e-6);
      EXPECT_NEAR(p.pos_grad()[i], -p.weight()[i] / (1 + std::exp(double{p.pos()[i]})), 1e-6);
    }
    const Problem bad(1, 19, 1);
    bad.pos()[7] = std::numeric_limits<float>::quiet_NaN();
    LogisticPositives(19, bad.pos(), bad.weight(), bad.pos_grad(), bad.loss());
    for (int64_t i = 0; i < 19; ++i) EXPECT_EQ(std::isfinite(bad.loss()[i]), i != 7);
  });
}

TEST(LossOpsTest, SoftmaxOverSeveralTilesIsSoftmaxOverAll) {
  ForEveryTarget([] {
    const Problem whole(90, 50, 1);
    const Problem parts(90, 50, 1);
    const Problem again(90, 50, 1);
    // The largest score of all comes last, far above the first ones.
    for (const Problem* p : {&whole, &parts, &again}) p->scores.at(89, 7) = 60;
    const int64_t violators = SoftmaxLoss(whole.tile());

    const OwnedRows state(2, 50);
    float* largest = state.row(0);
    float* sum = state.row(1);
    std::fill_n(largest, PaddedDim(50), -FLT_MAX);
    constexpr std::pair<int64_t, int64_t> kTiles[] = {{0, 1}, {1, 50}, {51, 39}};
    const OwnedRows largest_then(3, 50);
    int64_t found = 0;
    int t = 0;
    for (const auto& [first, count] : kTiles) {
      found += SoftmaxAccumulate(parts.scores.tile().Rows(first, count), parts.pos(), largest, sum);
      std::copy_n(largest, PaddedDim(50), largest_then.row(t++));
    }
    SoftmaxFinish(parts.tile(), largest, sum);
    t = 0;
    for (const auto& [first, count] : kTiles) {
      SoftmaxGradientOfExponentials(parts.scores.tile().Rows(first, count), largest_then.row(t++),
                                    largest, sum);
    }
    SoftmaxGradientOfScores(again.scores.tile(), largest, sum);

    EXPECT_EQ(found, violators);
    for (int64_t i = 0; i < 50; ++i) {
      EXPECT_NEAR(parts.loss()[i], whole.loss()[i], 1e-5);
      EXPECT_NEAR(parts.pos_grad()[i], whole.pos_grad()[i], 1e-6);
      for (int64_t j = 0; j < 90; ++j) {
        ASSERT_NEAR(parts.scores.at(j, i), whole.grads.at(j, i), 1e-6);
        ASSERT_NEAR(again.scores.at(j, i), whole.grads.at(j, i), 1e-6);
      }
    }
  });
}

TEST(LossOpsTest, SoftmaxOverSeveralTilesHidesNothing) {
  ForEveryTarget([] {
    for (const int64_t where : {0, 40, 89}) {
      const Problem p(90, 50, 1);
      p.scores.at(where, 3) = std::numeric_limits<float>::quiet_NaN();
      const OwnedRows state(2, 50);
      std::fill_n(state.row(0), PaddedDim(50), -FLT_MAX);
      for (int64_t first = 0; first < 90; first += 30) {
        SoftmaxAccumulate(p.scores.tile().Rows(first, 30), p.pos(), state.row(0), state.row(1));
      }
      SoftmaxFinish(p.tile(), state.row(0), state.row(1));
      for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(std::isfinite(p.loss()[i]), i != 3);
    }
  });
}

// The loss of one negative and a positive at 0 is log(1 + exp(s)); its slope shows the exponential.
TEST(LossOpsTest, ExponentialIsAccurate) {
  ForEveryTarget([] {
    for (double s = -80; s < 80; s += 0.037) {
      const Problem p(1, 1, 1);
      p.scores.at(0, 0) = static_cast<float>(s);
      p.weight()[0] = 1;
      LogisticLoss(p.tile(), 1);
      const double x = p.scores.at(0, 0);
      ASSERT_NEAR(p.grads.at(0, 0) / (1 / (1 + std::exp(-x))), 1, 4e-7) << s;
    }
  });
}

}  // namespace
}  // namespace weft
