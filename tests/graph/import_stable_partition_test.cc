#include <gtest/gtest.h>

#include <string>

#include "graph/stable_partition.h"

namespace weft {
namespace {

TEST(StablePartitionTest, HashIsXxh3OfTypeNulName) {
  EntityHasher hasher("user");

  EXPECT_EQ(hasher("alice"), HashBytes(std::string("user\0alice", 10)));
  // Fixed for ever: trained models depend on it. XXH3_64bits("user\0alice"), seed 0.
  EXPECT_EQ(hasher("alice"), 0x54a21013a3e7e2e6u);
}

TEST(StablePartitionTest, OneHasherServesNamesOfAnyLength) {
  EntityHasher hasher("t");
  const std::string long_name(100'000, 'x');

  EXPECT_EQ(hasher(long_name), HashBytes(std::string("t\0", 2) + long_name));
  EXPECT_EQ(hasher(""), HashBytes(std::string("t\0", 2)));
  EXPECT_EQ(hasher("a"), HashBytes(std::string("t\0a", 3)));
}

TEST(StablePartitionTest, TypesAreDifferentNamespaces) {
  EXPECT_NE(EntityHasher("user")("1"), EntityHasher("item")("1"));
  // `ab` + `c` is not `a` + `bc`.
  EXPECT_NE(EntityHasher("ab")("c"), EntityHasher("a")("bc"));
}

TEST(StablePartitionTest, IsTheHashModuloThePartitions) {
  for (const int num_partitions : {1, 2, 3, 11, 1024}) {
    const uint64_t hash = EntityHasher("user")("bob");

    EXPECT_EQ(StablePartition("user", "bob", num_partitions),
              static_cast<PartitionId>(hash % static_cast<uint64_t>(num_partitions)));
  }
}

TEST(StablePartitionTest, SpreadsNamesEvenly) {
  int counts[7] = {};
  for (int i = 0; i < 70'000; ++i) ++counts[StablePartition("user", std::to_string(i), 7)];

  // Binomial: the standard deviation is 93; six of them.
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 560);
}

}  // namespace
}  // namespace weft
