// The reference's gradients against finite differences of its own loss, in double precision, for
// every combination; and the optimizers' step against the formulas.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "services/common/random.h"
#include "services/trainer/nn/reference_factory.h"
#include "tests/testing/status_matchers.h"
#include "tests/trainer/reference_step_case.h"

namespace weft {
namespace {

using ::weft::testing::ClosestHinge;
using ::weft::testing::DrawStepCase;
using ::weft::testing::IsOk;
using ::weft::testing::kComparators;
using ::weft::testing::kLosses;
using ::weft::testing::kNegatives;
using ::weft::testing::kOperators;
using ::weft::testing::Negatives;
using ::weft::testing::StepCase;
using ::weft::testing::StepOptions;

constexpr float kStep = 0x1.0p-16f;

std::unique_ptr<BatchStep> MakeStep(StepCase& c) {
  auto step = nn::ReferenceFactory(nn::Precision::kDouble).Make(c.spec, &c.parameters);
  EXPECT_THAT(step, IsOk());
  return *std::move(step);
}

BatchScores ScoresOf(StepCase& c) {
  BatchScores scores;
  EXPECT_THAT(MakeStep(c)->Score(c.batch(), c.negatives, c.tables(), &scores), IsOk());
  return scores;
}

// Draws until no hinge is so close to its kink that a finite difference could straddle it.
StepCase DrawSmoothCase(const StepOptions& options) {
  for (uint64_t seed = 1;; ++seed) {
    StepCase c = DrawStepCase(options, seed);
    if (ClosestHinge(c.spec, ScoresOf(c)) > 1e-3) return c;
  }
}

// Everything that is trained, with a direction of +-1 to move each number in.
class Direction {
 public:
  Direction(StepCase& c, uint64_t seed) {
    RandomStream random(seed, RandomUse::kTest, 1);
    const auto add = [&](std::span<float> values) {
      std::vector<float>& signs = signs_.emplace_back(values.size());
      for (float& sign : signs) sign = random.Below(2) == 0 ? -1.0f : 1.0f;
      values_.push_back(values);
    };
    add(c.lhs_partition.embeddings.span());
    if (!c.shared_table) add(c.rhs_partition.embeddings.span());
    for (Parameter& p : c.parameters.all()) add(p.values.span());
  }

  void Move(float by) {
    for (size_t k = 0; k < values_.size(); ++k) {
      for (size_t i = 0; i < values_[k].size(); ++i) values_[k][i] += by * signs_[k][i];
    }
  }

  // sum of gradient times direction, and of its absolute terms, as the scale of the tolerance.
  struct Slope {
    double value = 0;
    double scale = 0;
  };
  Slope SlopeOf(const BatchGradients& g, const StepCase& c) const {
    Slope slope;
    const auto add = [&](double gradient, float sign) {
      slope.value += gradient * sign;
      slope.scale += std::abs(gradient);
    };
    const auto add_rows = [&](const BatchGradients::Rows& rows, size_t k) {
      const size_t d = c.lhs_partition.dimension();
      for (size_t i = 0; i < rows.values.size(); ++i) {
        add(rows.values[i], signs_[k][rows.offsets[i / d] * d + i % d]);
      }
    };
    size_t k = 0;
    add_rows(g.lhs, k++);
    if (!c.shared_table) add_rows(g.rhs, k++);
    for (const Parameter& p : c.parameters.all()) {
      const auto found = g.parameters.find(p.name);
      if (found != g.parameters.end()) {
        for (size_t i = 0; i < found->second.size(); ++i) add(found->second[i], signs_[k][i]);
      }
      ++k;
    }
    return slope;
  }

 private:
  std::vector<std::span<float>> values_;
  std::vector<std::vector<float>> signs_;
};

void ExpectGradientsMatchFiniteDifferences(const StepOptions& options) {
  SCOPED_TRACE(options.Name());
  StepCase c = DrawSmoothCase(options);
  const std::unique_ptr<BatchStep> step = MakeStep(c);
  const auto gradients = step->Gradients(c.batch(), c.negatives, c.tables());
  ASSERT_THAT(gradients, IsOk());

  for (const uint64_t seed : {1, 2}) {
    Direction direction(c, seed);
    const auto loss_at = [&](float by) {
      direction.Move(by);
      BatchScores scores;
      const auto stats = step->Score(c.batch(), c.negatives, c.tables(), &scores);
      direction.Move(-by);
      EXPECT_THAT(stats, IsOk());
      return stats.ok() ? stats->loss + stats->reg : std::nan("");
    };
    // Fourth order in the step.
    const double difference =
        (8 * (loss_at(kStep) - loss_at(-kStep)) - (loss_at(2 * kStep) - loss_at(-2 * kStep))) /
        (12 * kStep);
    const Direction::Slope slope = direction.SlopeOf(*gradients, c);
    EXPECT_NEAR(slope.value, difference, 1e-6 * slope.scale + 1e-8);
  }
}

void ForEveryCombination(const std::function<void(StepOptions)>& visit) {
  for (const Comparator comparator : kComparators) {
    for (const bool bias : {false, true}) {
      for (const Operator op : kOperators) {
        for (const bool dynamic : {false, true}) {
          for (const Loss loss : kLosses) {
            StepOptions options;
            options.comparator = comparator;
            options.bias = bias;
            options.op = op;
            options.dynamic = dynamic;
            options.loss = loss;
            visit(options);
          }
        }
      }
    }
  }
}

TEST(ReferenceGradientTest, EveryCombinationMatchesFiniteDifferences) {
  ForEveryCombination([](StepOptions options) {
    for (const Negatives negatives : kNegatives) {
      options.negatives = negatives;
      ExpectGradientsMatchFiniteDifferences(options);
    }
  });
}

TEST(ReferenceGradientTest, WeightsRegularizerGlobalEmbeddingAndSharedTableMatchFiniteDifferences) {
  ForEveryCombination([](StepOptions options) {
    options.weights = true;
    options.global_emb = true;
    options.regularization_coef = 0.25f;
    options.relation_weight = 1.5f;
    options.shared_table = true;
    ExpectGradientsMatchFiniteDifferences(options);
  });
}

TEST(ReferenceGradientTest, OddBatchShapesMatchFiniteDifferences) {
  struct Shape {
    int num_edges, chunk_size, num_uniform_negs, num_entities;
  };
  for (const Shape shape : {Shape{1, 3, 2, 7}, Shape{2, 50, 3, 7}, Shape{6, 3, 0, 2},
                            Shape{7, 1, 1, 3}, Shape{4, 4, 9, 1}}) {
    for (const bool dynamic : {false, true}) {
      for (const Loss loss : kLosses) {
        StepOptions options;
        options.op = Operator::kDiagonal;
        options.dynamic = dynamic;
        options.loss = loss;
        options.num_edges = shape.num_edges;
        options.chunk_size = shape.chunk_size;
        options.num_uniform_negs = shape.num_uniform_negs;
        options.num_entities = shape.num_entities;
        ExpectGradientsMatchFiniteDifferences(options);
      }
    }
  }
}

// A parameter that the batch does not touch may be missing among the gradients.
std::vector<float> GradientOf(const BatchGradients& gradients, const Parameter& p) {
  const auto found = gradients.parameters.find(p.name);
  return found == gradients.parameters.end() ? std::vector<float>(p.size()) : found->second;
}

void ExpectRowsStepped(const BatchGradients::Rows& rows, const EmbeddingPartition& before,
                       const EmbeddingPartition& after, double lr) {
  const int64_t d = before.dimension();
  for (int64_t row = 0; row < before.count(); ++row) {
    const auto found = std::ranges::find(rows.offsets, static_cast<EntityOffset>(row));
    if (found == rows.offsets.end()) {
      EXPECT_TRUE(std::ranges::equal(after.embeddings.row(row), before.embeddings.row(row)));
      EXPECT_EQ(after.adagrad_sums.row(row)[0], before.adagrad_sums.row(row)[0]);
      continue;
    }
    const float* g = rows.values.data() + (found - rows.offsets.begin()) * d;
    double sum = before.adagrad_sums.row(row)[0];
    for (int64_t k = 0; k < d; ++k) sum += double{g[k]} * g[k] / static_cast<double>(d);
    EXPECT_NEAR(after.adagrad_sums.row(row)[0], sum, 1e-6 * sum);
    for (int64_t k = 0; k < d; ++k) {
      EXPECT_NEAR(after.embeddings.row(row)[k],
                  before.embeddings.row(row)[k] - lr * g[k] / (std::sqrt(sum) + 1e-10), 1e-6);
    }
  }
}

TEST(ReferenceStepTest, TrainAppliesRowAdagradAndAdagradOnce) {
  for (const bool dynamic : {false, true}) {
    for (const bool shared_table : {false, true}) {
      StepOptions options;
      options.op = Operator::kAffine;
      options.dynamic = dynamic;
      options.shared_table = shared_table;
      options.global_emb = true;
      options.num_edges = 12;  // more edges than entities: rows are summed, then stepped once
      options.num_entities = 5;
      SCOPED_TRACE(options.Name());
      const StepCase before = DrawStepCase(options, 1);
      StepCase after = before.Clone();
      const std::unique_ptr<BatchStep> step = MakeStep(after);
      const auto gradients = step->Gradients(after.batch(), after.negatives, after.tables());
      ASSERT_THAT(gradients, IsOk());

      ASSERT_THAT(step->Train(after.batch(), after.negatives, after.tables()), IsOk());

      EXPECT_EQ(after.parameters.steps, 1);
      ExpectRowsStepped(gradients->lhs, before.lhs_partition, after.lhs_partition, 0.1);
      if (shared_table) {
        EXPECT_TRUE(gradients->rhs.offsets.empty());
      } else {
        ExpectRowsStepped(gradients->rhs, before.rhs_partition, after.rhs_partition, 0.1);
      }
      for (size_t k = 0; k < before.parameters.all().size(); ++k) {
        const Parameter& from = before.parameters.all()[k];
        const Parameter& to = after.parameters.all()[k];
        SCOPED_TRACE(from.name);
        const std::vector<float> g = GradientOf(*gradients, from);
        for (int64_t i = 0; i < from.size(); ++i) {
          const double sum = from.adagrad_sums.span()[i] + double{g[i]} * g[i];
          EXPECT_NEAR(to.adagrad_sums.span()[i], sum, 1e-6 * sum);
          EXPECT_NEAR(to.values.span()[i],
                      from.values.span()[i] - 0.05 * g[i] / (std::sqrt(sum) + 1e-10), 1e-6);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
