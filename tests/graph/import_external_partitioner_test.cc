#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <vector>

#include "graph/import/external_partitioner.h"
#include "services/common/status_macros.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using testing::IsOk;
using testing::StatusIs;

std::vector<EdgeRecord> ReadGroup(const ExternalPartitioner& partitioner, uint32_t group) {
  std::vector<EdgeRecord> edges;
  EXPECT_THAT(partitioner.Read(group,
                               [&](std::span<const EdgeRecord> piece) {
                                 edges.insert(edges.end(), piece.begin(), piece.end());
                                 return absl::OkStatus();
                               }),
              IsOk());
  return edges;
}

class ExternalPartitionerTest : public ::testing::Test {
 protected:
  testing::TempDir folder_;
};

TEST_F(ExternalPartitionerTest, KeepsTheOrderWithinAGroup) {
  ExternalPartitioner partitioner({.num_groups = 2, .folder = folder_.path()});
  const std::vector<EdgeRecord> edges = {{1, 2, 3, 0.5f}, {4, 5, 6, 1}, {7, 8, 9, 2}};
  const std::vector<uint32_t> groups = {1, 0, 1};

  ASSERT_THAT(partitioner.Add(edges, groups), IsOk());
  ASSERT_THAT(partitioner.Finish(), IsOk());

  EXPECT_EQ(ReadGroup(partitioner, 0), (std::vector<EdgeRecord>{{4, 5, 6, 1}}));
  EXPECT_EQ(ReadGroup(partitioner, 1), (std::vector<EdgeRecord>{{1, 2, 3, 0.5f}, {7, 8, 9, 2}}));
  EXPECT_EQ(partitioner.size(1), 2);
}

TEST_F(ExternalPartitionerTest, NothingAddedMeansEmptyGroups) {
  ExternalPartitioner partitioner({.num_groups = 3, .folder = folder_.path()});

  ASSERT_THAT(partitioner.Finish(), IsOk());

  EXPECT_TRUE(ReadGroup(partitioner, 2).empty());
  EXPECT_EQ(partitioner.size(2), 0);
}

TEST_F(ExternalPartitionerTest, SpillsWithoutChangingTheResult) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr uint32_t kGroups = 37;
  // The smallest buffer: 1,024 edges; so about 200 runs.
  ExternalPartitioner partitioner(
      {.num_groups = kGroups, .memory_bytes = 0, .folder = folder_.path()});
  std::vector<std::vector<EdgeRecord>> expected(kGroups);
  for (uint32_t i = 0; i < 200'000;) {
    std::vector<EdgeRecord> edges;
    std::vector<uint32_t> groups;
    for (uint32_t n = random() % 3000; n > 0; --n, ++i) {
      edges.push_back({i, i + 1, i % 5, static_cast<float>(i)});
      groups.push_back(random() % kGroups);
      expected[groups.back()].push_back(edges.back());
    }
    ASSERT_THAT(partitioner.Add(edges, groups), IsOk());
  }
  ASSERT_THAT(partitioner.Finish(), IsOk());

  // In any order, and again.
  for (const uint32_t group : {36u, 0u, 17u, 36u, 5u}) {
    EXPECT_EQ(partitioner.size(group), static_cast<int64_t>(expected[group].size()));
    EXPECT_EQ(ReadGroup(partitioner, group), expected[group]);
  }
  // The temporary file has no name.
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(ExternalPartitionerTest, StopsAtAnErrorOfTheVisitor) {
  ExternalPartitioner partitioner({.num_groups = 1, .memory_bytes = 0, .folder = folder_.path()});
  ASSERT_THAT(partitioner.Add(std::vector<EdgeRecord>(5000), std::vector<uint32_t>(5000)), IsOk());
  ASSERT_THAT(partitioner.Finish(), IsOk());
  int calls = 0;

  const absl::Status status = partitioner.Read(0, [&](std::span<const EdgeRecord>) {
    ++calls;
    return absl::AbortedError("enough");
  });

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(calls, 1);
}

TEST_F(ExternalPartitionerTest, AMissingFolderIsAnErrorThatNamesIt) {
  ExternalPartitioner partitioner(
      {.num_groups = 1, .memory_bytes = 0, .folder = folder_.File("none")});

  EXPECT_THAT(partitioner.Add(std::vector<EdgeRecord>(5000), std::vector<uint32_t>(5000)),
              StatusIs(absl::StatusCode::kNotFound, ::testing::HasSubstr("none")));
}

}  // namespace
}  // namespace weft
