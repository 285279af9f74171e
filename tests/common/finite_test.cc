#include "services/common/finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace weft {
namespace {

TEST(FirstNotFiniteTest, FindsTheFirstAtEveryPlace) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const size_t size : {1, 63, 64, 65, 200}) {
      for (size_t place = 0; place < size; ++place) {
        std::vector<float> values(size, std::numeric_limits<float>::max());
        values[place] = bad;
        values.back() = bad;
        ASSERT_EQ(FirstNotFinite(values), place) << "of " << size;
      }
    }
  }
}

TEST(FirstNotFiniteTest, FiniteValuesHaveNone) {
  EXPECT_EQ(FirstNotFinite({}), 0u);
  const std::vector<float> values(130, -std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(FirstNotFinite(values), 130u);
}

}  // namespace
}  // namespace weft
