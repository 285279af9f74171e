#include "services/common/float_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <new>

namespace weft {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(FloatBlockTest, IsZeroFilledWhateverItsSize) {
  for (const int64_t rows : {0, 1, 1000, 1'000'000}) {
    const FloatBlock block(rows, 3);
    EXPECT_EQ(block.size(), 3 * rows);
    EXPECT_THAT(block.span().last(std::min<size_t>(3, block.span().size())), Each(0.0f));
  }
}

TEST(FloatBlockTest, WhatFitsInNoMemoryIsSaid) {
  try {
    const FloatBlock block(int64_t{1} << 40, 1024);
    FAIL() << "4 PiB were mapped";
  } catch (const std::bad_alloc& error) {
    EXPECT_THAT(error.what(), HasSubstr("no room for 1099511627776 x 1024 numbers"));
  }
}

}  // namespace
}  // namespace weft
