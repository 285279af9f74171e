// What every BlobStore promises, as tests. A store takes part by its own instantiation:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, BlobStoreContractTest, ::testing::Values(MakeMemoryStore));
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "services/partition_server/blob_store.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft::testing {

// A store over `folder` (which durable ones use), for entity types 0 and 1.
using BlobStoreFactory = std::function<std::unique_ptr<BlobStore>(const std::string& folder)>;

class BlobStoreContractTest : public ::testing::TestWithParam<BlobStoreFactory> {
 protected:
  BlobStoreContractTest() : store(GetParam()(dir.path())) {}

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
    ASSERT_THAT(store->Get(name, &read), IsOk());
    EXPECT_EQ(Checksum(read), Checksum(table));
  }

  TempDir dir;
  std::unique_ptr<BlobStore> store;
};

TEST_P(BlobStoreContractTest, GetGivesWhatPutTook) {
  const EmbeddingPartition table = Table(1);

  ASSERT_THAT(store->Put({{0, 0}, 7}, table), IsOk());

  ExpectHolds({{0, 0}, 7}, table);
}

TEST_P(BlobStoreContractTest, NamesWithOtherTypePartitionOrTokenAreOtherBlobs) {
  const PartitionVersion names[] = {{{0, 0}, 7}, {{1, 0}, 7}, {{0, 1}, 7}, {{0, 0}, 8}};
  int seed = 0;
  for (const PartitionVersion& name : names) {
    ASSERT_THAT(store->Put(name, Table(++seed)), IsOk());
  }

  seed = 0;
  for (const PartitionVersion& name : names) ExpectHolds(name, Table(++seed));
}

TEST_P(BlobStoreContractTest, APartitionWithoutEntitiesIsABlob) {
  const EmbeddingPartition empty(0, 2);

  ASSERT_THAT(store->Put({{0, 0}, 7}, empty), IsOk());

  ExpectHolds({{0, 0}, 7}, empty);
  const auto info = store->Stat({{0, 0}, 7});
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(*info, (BlobInfo{0, 2}));
}

TEST_P(BlobStoreContractTest, WhatIsNotThereIsNotFound) {
  EmbeddingPartition out(3, 2);

  EXPECT_THAT(store->Get({{0, 0}, 7}, &out), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store->Stat({{0, 0}, 7}), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(BlobStoreContractTest, TheSameContentMayBePutAgain) {
  ASSERT_THAT(store->Put({{0, 0}, 7}, Table(1)), IsOk());

  EXPECT_THAT(store->Put({{0, 0}, 7}, Table(1)), IsOk());
}

TEST_P(BlobStoreContractTest, AnotherContentUnderTheSameNameIsRefused) {
  ASSERT_THAT(store->Put({{0, 0}, 7}, Table(1)), IsOk());

  EXPECT_THAT(store->Put({{0, 0}, 7}, Table(2)), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(store->Put({{0, 0}, 7}, Table(1, 4)), StatusIs(absl::StatusCode::kAlreadyExists));

  ExpectHolds({{0, 0}, 7}, Table(1));
}

TEST_P(BlobStoreContractTest, ABlobIsACopy) {
  EmbeddingPartition table = Table(1);
  ASSERT_THAT(store->Put({{0, 0}, 7}, table), IsOk());

  table.embeddings.data()[0] = 99;

  ExpectHolds({{0, 0}, 7}, Table(1));
}

TEST_P(BlobStoreContractTest, AnotherShapeIsRefusedWithBoth) {
  ASSERT_THAT(store->Put({{0, 0}, 7}, Table(1)), IsOk());
  EmbeddingPartition out(3, 5);

  EXPECT_THAT(store->Get({{0, 0}, 7}, &out),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(::testing::HasSubstr("2"), ::testing::HasSubstr("5"))));
}

TEST_P(BlobStoreContractTest, StatTellsTheShape) {
  ASSERT_THAT(store->Put({{0, 0}, 7}, Table(1, 5, 3)), IsOk());

  const auto info = store->Stat({{0, 0}, 7});

  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(*info, (BlobInfo{5, 3}));
}

TEST_P(BlobStoreContractTest, SweepDeletesWhatIsNotKept) {
  ASSERT_THAT(store->Put({{0, 0}, 7}, Table(1)), IsOk());
  ASSERT_THAT(store->Put({{0, 0}, 8}, Table(2)), IsOk());
  const PartitionVersion keep[] = {{{0, 0}, 8}};

  ASSERT_THAT(store->Sweep(8, keep), IsOk());

  EXPECT_THAT(store->Stat({{0, 0}, 7}), StatusIs(absl::StatusCode::kNotFound));
  ExpectHolds({{0, 0}, 8}, Table(2));
}

TEST_P(BlobStoreContractTest, SweepLeavesWhatIsNewerThanItsList) {
  // A list that was made before the grant of token 9.
  ASSERT_THAT(store->Put({{0, 0}, 9}, Table(1)), IsOk());

  ASSERT_THAT(store->Sweep(8, {}), IsOk());

  ExpectHolds({{0, 0}, 9}, Table(1));
}

TEST_P(BlobStoreContractTest, SweepIsRepeatable) {
  ASSERT_THAT(store->Put({{0, 0}, 7}, Table(1)), IsOk());

  EXPECT_THAT(store->Sweep(8, {}), IsOk());
  EXPECT_THAT(store->Sweep(8, {}), IsOk());
}

TEST_P(BlobStoreContractTest, ASweptNameMayBePutAnew) {
  ASSERT_THAT(store->Put({{0, 0}, 7}, Table(1)), IsOk());
  ASSERT_THAT(store->Sweep(7, {}), IsOk());

  ASSERT_THAT(store->Put({{0, 0}, 7}, Table(2)), IsOk());

  ExpectHolds({{0, 0}, 7}, Table(2));
}

TEST_P(BlobStoreContractTest, ThreadsMayPutAndGetAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 5; ++i) {
        const PartitionVersion name = {{t % 2, t}, static_cast<Token>(i)};
        EXPECT_THAT(store->Put(name, Table(10 * t + i)), IsOk());
        ExpectHolds(name, Table(10 * t + i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace weft::testing
