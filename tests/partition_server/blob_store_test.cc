#include "services/partition_server/blob_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/partition_server/memory_blob_storage.h"
#include "tests/partition_server/blob_store_contract.h"
#include "tests/partition_server/failing_blob_storage.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kCapacity = int64_t{1} << 30;

INSTANTIATE_TEST_SUITE_P(Memory, BlobStoreContractTest,
                         ::testing::Values([](const std::string&) -> std::unique_ptr<BlobStorage> {
                           return std::make_unique<MemoryBlobStorage>(kCapacity);
                         }));

class BlobStoreFaultTest : public ::testing::Test {
 protected:
  BlobStoreFaultTest()
      : store(*BlobStore::Open(std::make_unique<FailingBlobStorage>(
                                   std::make_unique<MemoryBlobStorage>(kCapacity), faults),
                               {.reserve_bytes = 0})) {}

  static constexpr ShardName kName = {{{0, 0}, 7}, 0};
  static constexpr ShardName kOther = {{{0, 1}, 7}, 0};

  const std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  const std::unique_ptr<BlobStore> store;
};

TEST_F(BlobStoreFaultTest, AFullDiskRefusesTheUploadAndNothingElse) {
  for (absl::Status Faults::*fault : {&Faults::stage, &Faults::append, &Faults::seal}) {
    (*faults).*fault = absl::ResourceExhaustedError("disk full");
    EXPECT_THAT(Put(store.get(), kName, Content(1, 100)),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("disk full")));
    (*faults).*fault = absl::OkStatus();
  }

  EXPECT_THAT(store->write_status(), IsOk());
  EXPECT_EQ(store->stats().uploads, 0);
  EXPECT_THAT(Put(store.get(), kName, Content(1, 100)), IsOk());
}

TEST_F(BlobStoreFaultTest, AFailedWriteEndsWritingWithItsCause) {
  ASSERT_THAT(Put(store.get(), kOther, Content(1, 100)), IsOk());
  const auto begun = store->BeginUpload({{{0, 2}, 7}, 0}, InfoOf(Content(1, 100)));
  ASSERT_THAT(begun, IsOk());
  faults->append = absl::InternalError("EIO");
  ASSERT_THAT(Put(store.get(), kName, Content(1, 100)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  faults->append = absl::OkStatus();

  const auto refused = StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO"));
  EXPECT_THAT(Put(store.get(), kName, Content(1, 100)), refused);
  EXPECT_THAT(AppendAll(begun->get(), Content(1, 100)), refused);
  EXPECT_THAT(store->Sweep(7, {}), refused);
  EXPECT_THAT(store->write_status(), refused);
  // What is there can be read.
  EXPECT_THAT(Get(store.get(), kOther), IsOk());
}

TEST_F(BlobStoreFaultTest, AFailedPublishEndsWritingHoweverItFailed) {
  faults->publish = absl::ResourceExhaustedError("disk full");

  EXPECT_THAT(Put(store.get(), kName, Content(1, 100)),
              StatusIs(absl::StatusCode::kResourceExhausted));

  EXPECT_THAT(store->write_status(), StatusIs(absl::StatusCode::kInternal, HasSubstr("disk full")));
  EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(BlobStoreFaultTest, AFailedRemovalEndsWriting) {
  ASSERT_THAT(Put(store.get(), kName, Content(1, 100)), IsOk());
  faults->remove = absl::InternalError("EIO");

  EXPECT_THAT(store->Sweep(7, {}), StatusIs(absl::StatusCode::kInternal));

  EXPECT_THAT(store->write_status(), StatusIs(absl::StatusCode::kInternal));
}

TEST_F(BlobStoreFaultTest, ADamagedBlobIsQuarantinedUntilItIsPutAnew) {
  ASSERT_THAT(Put(store.get(), kName, Content(1, 100)), IsOk());
  faults->flip_bits = true;

  EXPECT_THAT(store->Verify(kName), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("segment 0")));
  faults->flip_bits = false;
  EXPECT_THAT(store->OpenReader(kName), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_EQ(store->List().size(), 1u);
  EXPECT_TRUE(store->List()[0].damaged);
  EXPECT_EQ(store->stats().damaged, 1);

  ASSERT_THAT(Put(store.get(), kName, Content(1, 100)), IsOk());
  EXPECT_THAT(store->Verify(kName), IsOk());
  EXPECT_EQ(store->stats().damaged, 0);
}

TEST_F(BlobStoreFaultTest, WhatTheStorageCallsDamagedIsQuarantined) {
  ASSERT_THAT(Put(store.get(), kName, Content(1, 100)), IsOk());
  faults->read = absl::DataLossError("bad block");

  EXPECT_THAT(Get(store.get(), kName),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bad block")));

  EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(BlobStoreFaultTest, AReadThatFailsOtherwiseDamagesNothing) {
  ASSERT_THAT(Put(store.get(), kName, Content(1, 100)), IsOk());
  faults->read = absl::InternalError("too many open files");

  EXPECT_THAT(Get(store.get(), kName), StatusIs(absl::StatusCode::kInternal));

  EXPECT_THAT(store->Stat(kName), IsOk());
}

TEST(MemoryBlobStorageTest, HoldsNoMoreThanItMayAndFreesWhatIsSwept) {
  const auto store =
      *BlobStore::Open(std::make_unique<MemoryBlobStorage>(1000), {.reserve_bytes = 100});
  ASSERT_THAT(Put(store.get(), {{{0, 0}, 7}, 0}, Content(1, 600)), IsOk());
  EXPECT_EQ(store->FreeBytes(), 300);

  EXPECT_THAT(Put(store.get(), {{{0, 0}, 8}, 0}, Content(1, 301)),
              StatusIs(absl::StatusCode::kResourceExhausted));
  const auto announced = store->BeginUpload({{{0, 0}, 8}, 0}, InfoOf(Content(1, 200)));
  ASSERT_THAT(announced, IsOk());
  EXPECT_EQ(store->FreeBytes(), 100);

  ASSERT_THAT(store->Sweep(8, {}), IsOk());
  EXPECT_EQ(store->FreeBytes(), 900);
}

}  // namespace
}  // namespace weft::testing
