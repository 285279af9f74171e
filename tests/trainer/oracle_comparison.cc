#include "tests/trainer/oracle_comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "services/trainer/nn/reference_factory.h"
#include "tests/testing/status_matchers.h"

namespace weft::testing {
namespace {

constexpr float kIgnoredScore = -1e9f;

double Largest(std::span<const float> values) {
  double largest = 0;
  for (const float x : values) {
    if (x != kIgnoredScore) largest = std::max(largest, std::abs(double{x}));
  }
  return largest;
}

// [count, d], zero where there is no row.
std::vector<float> Whole(const BatchGradients::Rows& rows, const EmbeddingPartition& table) {
  std::vector<float> whole(table.embeddings.size());
  const int64_t d = table.dimension();
  for (size_t i = 0; i < rows.offsets.size(); ++i) {
    std::copy_n(rows.values.begin() + static_cast<int64_t>(i) * d, d,
                whole.begin() + rows.offsets[i] * d);
  }
  return whole;
}

// A parameter that the batch does not touch may be missing.
std::vector<float> GradientOf(const BatchGradients& gradients, const Parameter& p) {
  const auto found = gradients.parameters.find(p.name);
  return found == gradients.parameters.end() ? std::vector<float>(p.size()) : found->second;
}

// The largest column sum of absolute values.
double SumOfRows(const BatchGradients::Rows& rows, int64_t d) {
  std::vector<double> sums(d);
  for (size_t i = 0; i < rows.values.size(); ++i) sums[i % d] += std::abs(rows.values[i]);
  return *std::ranges::max_element(sums);
}

class Comparison {
 public:
  Comparison(const ReferenceAnswers& reference, double tolerance)
      : reference_(reference), tolerance_(tolerance) {
    const ModelSpec& spec = reference.before.spec;
    if (spec.bias) {
      // Every edge adds up to its weight to the gradient of a bias, and softmax cancels all of it:
      // it does not change when the same is added to all scores.
      row_gradient_error_ = tolerance * spec.relation(reference.before.relation()).weight *
                            std::max(1.0, Largest(reference.before.weight));
    }
    // A parameter's gradient is a sum over the rows that it acted on, and may cancel likewise. What
    // was summed is the scale.
    const int64_t d = reference.before.lhs_partition.dimension();
    parameter_gradient_error_ =
        tolerance * (SumOfRows(reference.gradients.lhs, d) + SumOfRows(reference.gradients.rhs, d));
  }

  void ExpectLoss(const BatchStats& stats) const {
    EXPECT_EQ(stats.count, reference_.stats.count);
    EXPECT_NEAR(stats.loss, reference_.stats.loss, tolerance_ * std::abs(reference_.stats.loss));
    EXPECT_NEAR(stats.reg, reference_.stats.reg, tolerance_ * std::abs(reference_.stats.reg));
    ExpectViolators(stats.violators_lhs, reference_.scores.lhs_pos, reference_.scores.lhs_neg,
                    reference_.scores.lhs_num_neg);
    ExpectViolators(stats.violators_rhs, reference_.scores.rhs_pos, reference_.scores.rhs_neg,
                    reference_.scores.rhs_num_neg);
  }

  void ExpectScores(const BatchScores& scores) const {
    const BatchScores& expected = reference_.scores;
    EXPECT_EQ(scores.lhs_num_neg, expected.lhs_num_neg);
    EXPECT_EQ(scores.rhs_num_neg, expected.rhs_num_neg);
    // All scores together are the tensor: a single positive may be as small as it likes.
    const double allowed =
        tolerance_ * std::max({Largest(expected.lhs_pos), Largest(expected.rhs_pos),
                               Largest(expected.lhs_neg), Largest(expected.rhs_neg)});
    ExpectNear(scores.lhs_pos, expected.lhs_pos, "lhs_pos", allowed);
    ExpectNear(scores.rhs_pos, expected.rhs_pos, "rhs_pos", allowed);
    ExpectNear(scores.lhs_neg, expected.lhs_neg, "lhs_neg", allowed);
    ExpectNear(scores.rhs_neg, expected.rhs_neg, "rhs_neg", allowed);
  }

  void ExpectGradients(const BatchGradients& gradients) const {
    const EmbeddingPartition& lhs = reference_.before.lhs_partition;
    ExpectNear(Whole(gradients.lhs, lhs), Whole(reference_.gradients.lhs, lhs), "lhs gradient",
               row_gradient_error_);
    if (reference_.before.shared_table) {
      EXPECT_TRUE(gradients.rhs.offsets.empty());
    } else {
      const EmbeddingPartition& rhs = reference_.before.rhs_partition;
      ExpectNear(Whole(gradients.rhs, rhs), Whole(reference_.gradients.rhs, rhs), "rhs gradient",
                 row_gradient_error_);
    }
    for (const Parameter& p : reference_.before.parameters.all()) {
      ExpectNear(GradientOf(gradients, p), GradientOf(reference_.gradients, p),
                 "gradient of " + p.name, parameter_gradient_error_);
    }
  }

  void ExpectStepped(const StepCase& actual) const {
    const StepCase& expected = reference_.after;
    ExpectTable(actual.lhs_partition, expected.lhs_partition, "lhs");
    ExpectTable(actual.rhs_partition, expected.rhs_partition, "rhs");
    for (size_t i = 0; i < expected.parameters.all().size(); ++i) {
      const Parameter& a = actual.parameters.all()[i];
      const Parameter& b = expected.parameters.all()[i];
      // The gradient's error, carried through G += g^2 and p -= lr * g / sqrt(G).
      const double smallest_sum = *std::ranges::min_element(b.adagrad_sums.span());
      ExpectNear(a.values.span(), b.values.span(), b.name + " after the step",
                 expected.spec.relation_lr * parameter_gradient_error_ / std::sqrt(smallest_sum));
      ExpectNear(a.adagrad_sums.span(), b.adagrad_sums.span(), b.name + " sums after the step",
                 2 * Largest(GradientOf(reference_.gradients, b)) * parameter_gradient_error_);
    }
    EXPECT_EQ(actual.parameters.steps, expected.parameters.steps);
  }

 private:
  // `allowed`: an absolute error that is tolerated even if all of `expected` is smaller.
  void ExpectNear(std::span<const float> actual, std::span<const float> expected,
                  const std::string& what, double allowed = 0) const {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    allowed = std::max(allowed, tolerance_ * Largest(expected));
    // One message a tensor, at its worst number.
    size_t worst = 0;
    double worst_error = -1;
    for (size_t i = 0; i < expected.size(); ++i) {
      double error = std::abs(double{actual[i]} - expected[i]);
      if ((actual[i] == kIgnoredScore) != (expected[i] == kIgnoredScore) || std::isnan(error)) {
        error = HUGE_VAL;
      }
      if (error > worst_error) {
        worst_error = error;
        worst = i;
      }
    }
    EXPECT_LE(worst_error, allowed) << what << "[" << worst << "] of " << expected.size() << ": "
                                    << actual[worst] << ", the reference has " << expected[worst];
  }

  void ExpectTable(const EmbeddingPartition& actual, const EmbeddingPartition& expected,
                   const std::string& side) const {
    ExpectNear(actual.embeddings.span(), expected.embeddings.span(),
               side + " embeddings after the step");
    ExpectNear(actual.adagrad_sums.span(), expected.adagrad_sums.span(),
               side + " sums after the step");
  }

  // Equal scores, of a positive and of a negative with the same entity, may differ by a rounding.
  void ExpectViolators(int64_t actual, const std::vector<float>& pos, const std::vector<float>& neg,
                       int64_t num_neg) const {
    int64_t surely = 0;
    int64_t perhaps = 0;
    for (size_t i = 0; i < neg.size(); ++i) {
      const double difference = double{neg[i]} - pos[i / num_neg];
      const double rounding = tolerance_ * (1 + std::abs(pos[i / num_neg]));
      surely += difference > rounding;
      perhaps += difference > -rounding;
    }
    EXPECT_GE(actual, surely);
    EXPECT_LE(actual, perhaps);
  }

  const ReferenceAnswers& reference_;
  const double tolerance_;
  double row_gradient_error_ = 0;
  double parameter_gradient_error_ = 0;
};

}  // namespace

ReferenceAnswers AskReference(StepCase c) {
  ReferenceAnswers answers;
  answers.before = c.Clone();
  const auto step = nn::ReferenceFactory(nn::Precision::kDouble).Make(c.spec, &c.parameters);
  EXPECT_THAT(step, IsOk());
  if (!step.ok()) return answers;
  const auto stats = (*step)->Score(c.batch(), c.negatives, c.tables(), &answers.scores);
  EXPECT_THAT(stats, IsOk());
  if (stats.ok()) answers.stats = *stats;
  auto gradients = (*step)->Gradients(c.batch(), c.negatives, c.tables());
  EXPECT_THAT(gradients, IsOk());
  if (gradients.ok()) answers.gradients = *std::move(gradients);
  EXPECT_THAT((*step)->Train(c.batch(), c.negatives, c.tables()), IsOk());
  answers.after = std::move(c);
  return answers;
}

StepCase DrawComparableCase(const StepOptions& options) {
  for (uint64_t seed = 1;; ++seed) {
    StepCase c = DrawStepCase(options, seed);
    StepCase tried = c.Clone();
    const auto step =
        nn::ReferenceFactory(nn::Precision::kDouble).Make(tried.spec, &tried.parameters);
    EXPECT_THAT(step, IsOk());
    BatchScores scores;
    EXPECT_THAT((*step)->Score(tried.batch(), tried.negatives, tried.tables(), &scores), IsOk());
    if (ClosestHinge(tried.spec, scores) < 1e-5) continue;
    // A single score may be what cancellation has left: nothing to compare its error with.
    const double largest = std::max({Largest(scores.lhs_pos), Largest(scores.rhs_pos),
                                     Largest(scores.lhs_neg), Largest(scores.rhs_neg)});
    if (largest < 1e-2 && seed < 100) continue;
    if (seed > 20) return c;  // there is nothing to learn: no negative is compared at all
    const auto gradients = (*step)->Gradients(tried.batch(), tried.negatives, tried.tables());
    EXPECT_THAT(gradients, IsOk());
    const bool cancels = Largest(gradients->lhs.values) < 1e-2 ||
                         (!tried.shared_table && Largest(gradients->rhs.values) < 1e-2);
    if (!cancels) return c;
  }
}

void ExpectSameAnswers(const ReferenceAnswers& reference, const BatchStepFactory& factory,
                       double tolerance) {
  const Comparison comparison(reference, tolerance);
  {
    StepCase c = reference.before.Clone();
    const auto step = factory.Make(c.spec, &c.parameters);
    ASSERT_THAT(step, IsOk());
    BatchScores scores;
    const auto stats = (*step)->Score(c.batch(), c.negatives, c.tables(), &scores);
    ASSERT_THAT(stats, IsOk());
    comparison.ExpectLoss(*stats);
    comparison.ExpectScores(scores);
    const auto gradients = (*step)->Gradients(c.batch(), c.negatives, c.tables());
    ASSERT_THAT(gradients, IsOk());
    comparison.ExpectGradients(*gradients);
  }
  StepCase c = reference.before.Clone();
  const auto step = factory.Make(c.spec, &c.parameters);
  ASSERT_THAT(step, IsOk());
  const auto stats = (*step)->Train(c.batch(), c.negatives, c.tables());
  ASSERT_THAT(stats, IsOk());
  comparison.ExpectLoss(*stats);
  comparison.ExpectStepped(c);
}

}  // namespace weft::testing
