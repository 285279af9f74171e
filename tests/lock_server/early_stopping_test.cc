#include "services/lock_server/early_stopping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace weft {
namespace {

EarlyStoppingOptions Options(EarlyStoppingMetric metric, int patience) {
  return RunConfig::EarlyStopping{metric, patience};
}

BucketStats Held(int64_t count, double loss, double mrr) {
  BucketStats stats;
  stats.train = {1000, {{"loss", 99}}};
  stats.eval_before = Stats{count, {{"loss", loss}, {"mrr", mrr}}};
  return stats;
}

// Epochs with one bucket of these losses.
EarlyStoppingState After(const EarlyStoppingOptions& options, const std::vector<double>& losses) {
  EarlyStoppingState state;
  for (size_t epoch = 0; epoch < losses.size(); ++epoch) {
    AddPass(options, std::vector<BucketStats>{Held(1, losses[epoch], 0)}, &state);
    EndEpoch(options, static_cast<int>(epoch), static_cast<int64_t>(epoch) + 1, &state);
  }
  return state;
}

TEST(EarlyStoppingTest, TheValueOfAnEpochIsWeightedByHeldOutEdges) {
  const EarlyStoppingOptions options = Options(EarlyStoppingMetric::kLoss, 1);
  EarlyStoppingState state;
  AddPass(options, std::vector<BucketStats>{Held(1, 4, 0), Held(3, 2, 0)}, &state);
  AddPass(options, std::vector<BucketStats>{Held(4, 1.5, 0)}, &state);

  EndEpoch(options, 0, 2, &state);

  EXPECT_DOUBLE_EQ(*state.best_value, (4 + 3 * 2 + 4 * 1.5) / 8);
}

TEST(EarlyStoppingTest, AnEpochJudgesTheVersionItBeganWith) {
  const EarlyStoppingState state = After(Options(EarlyStoppingMetric::kLoss, 5), {3, 2, 2.5});

  EXPECT_EQ(state.best_version, 1);
  EXPECT_EQ(state.best_epoch, 1);
  EXPECT_EQ(state.epochs_since_best, 1);
}

TEST(EarlyStoppingTest, StopsAfterPatienceEpochsWithoutABetterValue) {
  const EarlyStoppingOptions options = Options(EarlyStoppingMetric::kLoss, 2);

  EXPECT_FALSE(ShouldStop(options, After(options, {3, 2, 2.5})));
  EXPECT_TRUE(ShouldStop(options, After(options, {3, 2, 2.5, 2})));
}

TEST(EarlyStoppingTest, ALargerMrrIsBetter) {
  const EarlyStoppingOptions options = Options(EarlyStoppingMetric::kMrr, 1);
  EarlyStoppingState state;
  AddPass(options, std::vector<BucketStats>{Held(1, 0, 0.2)}, &state);
  EndEpoch(options, 0, 1, &state);
  AddPass(options, std::vector<BucketStats>{Held(1, 0, 0.3)}, &state);

  EndEpoch(options, 1, 2, &state);

  EXPECT_DOUBLE_EQ(*state.best_value, 0.3);
  EXPECT_FALSE(ShouldStop(options, state));
}

TEST(EarlyStoppingTest, WithoutHeldOutEdgesTheTrainingLossCounts) {
  const EarlyStoppingOptions options = Options(EarlyStoppingMetric::kLoss, 1);
  BucketStats stats;
  stats.train = {10, {{"loss", 0.75}}};
  EarlyStoppingState state;
  AddPass(options, std::vector<BucketStats>{stats}, &state);

  EndEpoch(options, 0, 1, &state);

  EXPECT_DOUBLE_EQ(*state.best_value, 0.75);
}

TEST(EarlyStoppingTest, AValueThatIsNotFiniteDoesNotCount) {
  const EarlyStoppingOptions options = Options(EarlyStoppingMetric::kLoss, 1);
  EarlyStoppingState state;
  AddPass(options, std::vector<BucketStats>{Held(1, std::nan(""), 0)}, &state);

  EndEpoch(options, 0, 1, &state);

  EXPECT_FALSE(state.best_value.has_value());
  EXPECT_FALSE(ShouldStop(options, state));
}

TEST(EarlyStoppingTest, WithoutTheOptionNothingStops) {
  EXPECT_FALSE(ShouldStop(std::nullopt, After(std::nullopt, {1, 2, 3, 4})));
}

TEST(EarlyStoppingTest, PatienceZeroIsOne) {
  const EarlyStoppingOptions options = Options(EarlyStoppingMetric::kLoss, 0);

  EXPECT_FALSE(ShouldStop(options, After(options, {3, 2})));
  EXPECT_TRUE(ShouldStop(options, After(options, {3, 3})));
}

}  // namespace
}  // namespace weft
