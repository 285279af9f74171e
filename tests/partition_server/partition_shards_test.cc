#include "services/partition_server/partition_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace weft::testing {
namespace {

TEST(PartitionShardsTest, ShardsHoldAllRowsOnce) {
  for (const int64_t count : {0, 1, 2, 7, 100, 101}) {
    for (const int64_t shard_bytes : {1, 40, 41, 79, 80, 1000, 1000000}) {
      const VersionInfo version = {{{0, 0}, 7}, CutInShards(count, 9, shard_bytes)};
      EXPECT_THAT(CheckShards(version, count, 9), IsOk()) << count << " " << shard_bytes;
      for (const ShardInfo& shard : version.shards) {
        EXPECT_TRUE(shard.num_rows <= 1 || shard.size_bytes <= shard_bytes);
      }
    }
  }
}

TEST(PartitionShardsTest, ShardsThatAreNotThePartitionAreRefused) {
  const VersionInfo good = {{{0, 0}, 7}, CutInShards(100, 9, 1000)};
  ASSERT_GT(good.shards.size(), 2u);
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition);

  EXPECT_THAT(CheckShards(good, 101, 9), refused);
  EXPECT_THAT(CheckShards(good, 99, 9), refused);
  EXPECT_THAT(CheckShards(good, 100, 8), refused);
  EXPECT_THAT(CheckShards({good.version, {}}, 0, 9), refused);
  VersionInfo swapped = good;
  std::swap(swapped.shards[0], swapped.shards[1]);
  EXPECT_THAT(CheckShards(swapped, 100, 9), refused);
  VersionInfo huge = good;
  huge.shards[0].num_rows = INT64_MAX / 64;
  EXPECT_THAT(CheckShards(huge, 100, 9), refused);
}

TEST(PartitionShardsTest, AnyRangeOfAShardIsFoundInMemory) {
  EmbeddingPartition partition(7, 3);
  for (int64_t i = 0; i < partition.embeddings.size(); ++i) {
    partition.embeddings.data()[i] = static_cast<float>(i);
  }
  for (int64_t i = 0; i < 7; ++i) partition.adagrad_sums.data()[i] = static_cast<float>(100 + i);
  for (const ShardInfo& shard : CutInShards(7, 3, 48)) {
    std::vector<float> expected;
    for (int64_t i = 0; i < shard.num_rows * 3; ++i) {
      expected.push_back(static_cast<float>(shard.first_row * 3 + i));
    }
    for (int64_t i = 0; i < shard.num_rows; ++i) {
      expected.push_back(static_cast<float>(100 + shard.first_row + i));
    }
    const std::string all(reinterpret_cast<const char*>(expected.data()),
                          expected.size() * sizeof(float));
    ASSERT_EQ(static_cast<int64_t>(all.size()), shard.size_bytes);
    for (int64_t begin = 0; begin <= shard.size_bytes; ++begin) {
      for (int64_t bytes = 0; bytes <= shard.size_bytes - begin; ++bytes) {
        std::string found;
        for (const absl::string_view piece : PiecesOf(partition, shard, begin, bytes)) {
          found.append(piece.data(), piece.size());
        }
        EXPECT_EQ(found, all.substr(static_cast<size_t>(begin), static_cast<size_t>(bytes)));
      }
    }
  }
}

}  // namespace
}  // namespace weft::testing
