// What every PartitionClient promises, as tests. A client takes part by its own instantiation:
//
//   INSTANTIATE_TEST_SUITE_P(File, PartitionClientContractTest, ::testing::Values(MakeFileStore));
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "services/partition_server/partition_client.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft::testing {

// A client of stores over `folder` (which durable ones use), for entity types 0 and 1.
using PartitionClientFactory =
    std::function<std::unique_ptr<PartitionClient>(const std::string& folder)>;

class PartitionClientContractTest : public ::testing::TestWithParam<PartitionClientFactory> {
 protected:
  PartitionClientContractTest() : client(GetParam()(dir.path())) {}

  // Distinct values that depend on `seed`.
  static EmbeddingPartition Table(int seed, int64_t count = 3, int64_t dimension = 2) {
    EmbeddingPartition table(count, dimension);
    for (int64_t i = 0; i < table.embeddings.size(); ++i) {
      table.embeddings.data()[i] = static_cast<float>(seed) + static_cast<float>(i) / 16;
    }
    for (int64_t i = 0; i < count; ++i) {
      table.adagrad_sums.data()[i] = static_cast<float>(seed * 100) + static_cast<float>(i);
    }
    return table;
  }

  void ExpectHolds(const PartitionVersion& name, const EmbeddingPartition& table) {
    EmbeddingPartition read(table.count(), table.dimension());
    ASSERT_THAT(client->Read(name, &read), IsOk());
    EXPECT_EQ(Checksum(read), Checksum(table));
  }

  TempDir dir;
  std::unique_ptr<PartitionClient> client;
};

TEST_P(PartitionClientContractTest, GetGivesWhatPutTook) {
  const EmbeddingPartition table = Table(1);

  ASSERT_THAT(client->Store({{0, 0}, 7}, table), IsOk());

  ExpectHolds({{0, 0}, 7}, table);
}

TEST_P(PartitionClientContractTest, NamesWithOtherTypePartitionOrTokenAreOtherBlobs) {
  const PartitionVersion names[] = {{{0, 0}, 7}, {{1, 0}, 7}, {{0, 1}, 7}, {{0, 0}, 8}};
  int seed = 0;
  for (const PartitionVersion& name : names) {
    ASSERT_THAT(client->Store(name, Table(++seed)), IsOk());
  }

  seed = 0;
  for (const PartitionVersion& name : names) ExpectHolds(name, Table(++seed));
}

TEST_P(PartitionClientContractTest, APartitionWithoutEntitiesIsABlob) {
  const EmbeddingPartition empty(0, 2);

  ASSERT_THAT(client->Store({{0, 0}, 7}, empty), IsOk());

  ExpectHolds({{0, 0}, 7}, empty);
}

TEST_P(PartitionClientContractTest, WhatIsNotThereIsNotFound) {
  ASSERT_THAT(client->Store({{0, 0}, 7}, Table(1)), IsOk());
  EmbeddingPartition out(3, 2);

  EXPECT_THAT(client->Read({{0, 0}, 8}, &out), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(PartitionClientContractTest, TheSameContentMayBePutAgain) {
  ASSERT_THAT(client->Store({{0, 0}, 7}, Table(1)), IsOk());

  EXPECT_THAT(client->Store({{0, 0}, 7}, Table(1)), IsOk());
}

TEST_P(PartitionClientContractTest, AnotherContentUnderTheSameNameIsRefused) {
  ASSERT_THAT(client->Store({{0, 0}, 7}, Table(1)), IsOk());

  EXPECT_THAT(client->Store({{0, 0}, 7}, Table(2)), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(client->Store({{0, 0}, 7}, Table(2, 4)), StatusIs(absl::StatusCode::kAlreadyExists));

  ExpectHolds({{0, 0}, 7}, Table(1));
}

TEST_P(PartitionClientContractTest, ABlobIsACopy) {
  EmbeddingPartition table = Table(1);
  ASSERT_THAT(client->Store({{0, 0}, 7}, table), IsOk());

  table.embeddings.data()[0] = 99;

  ExpectHolds({{0, 0}, 7}, Table(1));
}

TEST_P(PartitionClientContractTest, AnotherShapeIsRefused) {
  ASSERT_THAT(client->Store({{0, 0}, 7}, Table(1)), IsOk());
  EmbeddingPartition out(3, 5);

  EXPECT_THAT(client->Read({{0, 0}, 7}, &out),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("5")));
}

TEST_P(PartitionClientContractTest, ThreadsMayPutAndGetAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 5; ++i) {
        const PartitionVersion name = {{t % 2, t}, static_cast<Token>(i)};
        EXPECT_THAT(client->Store(name, Table(10 * t + i)), IsOk());
        ExpectHolds(name, Table(10 * t + i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace weft::testing
