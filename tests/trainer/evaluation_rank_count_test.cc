#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <limits>
#include <random>
#include <vector>

#include "services/trainer/kernels/rank_count.h"

namespace weft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Runs `body` once on every instruction set that this CPU has.
template <typename Body>
void OnEveryTarget(Body body) {
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(CountAboveAndTiesTest, AgreesWithAPlainLoopForEveryLength) {
  std::mt19937 random(3);
  std::vector<float> scores(151);
  for (float& s : scores) s = static_cast<float>(static_cast<int>(random() % 7) - 3);
  OnEveryTarget([&] {
    for (size_t n = 0; n <= scores.size(); ++n) {
      int64_t above = 0;
      int64_t ties = 0;
      for (size_t i = 0; i < n; ++i) {
        above += scores[i] > 1 ? 1 : 0;
        ties += scores[i] == 1 ? 1 : 0;
      }

      const RankCount count = CountAboveAndTies(scores.data(), static_cast<int64_t>(n), 1);

      ASSERT_EQ(count.above, above) << n;
      ASSERT_EQ(count.ties, ties) << n;
    }
  });
}

TEST(CountAboveAndTiesTest, TellsNeighbouringFloatsApart) {
  const float one_up = std::nextafter(1.0f, 2.0f);
  const float one_down = std::nextafter(1.0f, 0.0f);
  std::vector<float> scores(64, 1.0f);
  scores[5] = one_up;
  scores[63] = one_down;
  OnEveryTarget([&] {
    const RankCount count = CountAboveAndTies(scores.data(), 64, 1.0f);

    EXPECT_EQ(count.above, 1);
    EXPECT_EQ(count.ties, 62);
  });
}

TEST(FindNonFiniteTest, FindsTheFirstOneAtEveryPosition) {
  OnEveryTarget([&] {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      for (int64_t at = 0; at < 600; ++at) {
        std::vector<float> values(600, -1e30f);
        values[at] = bad;
        values[599] = bad;

        ASSERT_EQ(FindNonFinite(values.data(), 600), at);
      }
    }
  });
}

TEST(FindNonFiniteTest, LargestAndSmallestFloatsAreFinite) {
  std::vector<float> values(513, std::numeric_limits<float>::max());
  values[7] = std::numeric_limits<float>::denorm_min();
  values[8] = -std::numeric_limits<float>::max();
  OnEveryTarget([&] { EXPECT_EQ(FindNonFinite(values.data(), 513), 513); });
}

}  // namespace
}  // namespace weft
