#include "services/partition_server/partition_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "services/common/work_pool.h"
#include "services/partition_server/memory_blob_storage.h"
#include "tests/partition_server/blob_testing.h"
#include "tests/partition_server/failing_blob_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft::testing {
namespace {

const std::string kRun(32, 'a');

// Both stores of a memory-backed server are in memory here.
class PartitionSyncTest : public ::testing::Test {
 protected:
  static std::unique_ptr<BlobStore> MakeBlobs(std::shared_ptr<const Faults> faults) {
    return *BlobStore::Open(
        std::make_unique<FailingBlobStorage>(std::make_unique<MemoryBlobStorage>(1 << 20), faults),
        {.reserve_bytes = 0});
  }

  StoreSyncClient::Answer Answer() const {
    StoreSyncClient::Answer answer;
    answer.context = {kRun, 3, 9, std::nullopt};
    answer.instructions.revision = 17;
    return answer;
  }

  static constexpr ShardName kName = {{{0, 0}, 7}, 0};
  static constexpr ShardName kOther = {{{0, 1}, 7}, 0};

  TempDir dir;
  const std::shared_ptr<Faults> disk_faults = std::make_shared<Faults>();
  PartitionStore store{*StoreFolder::Open(dir.path()), MakeBlobs(disk_faults),
                       MakeBlobs(std::make_shared<Faults>())};
  StoreOrders orders{&store, nullptr};
  Mutex mu;
  CondVar done;
  int changes = 0;
  WorkPool workers{1};  // idle when a test ends: its tests wait for the orders they give
  PartitionSync sync{&store, &orders, &workers, "host:1", [this] {
                       MutexLock lock(&mu);
                       ++changes;
                       done.SignalAll();
                     }};

  void WaitForChanges(int count) {
    MutexLock lock(&mu);
    while (changes < count) done.Wait(&mu);
  }

  absl::Status PutIn(const ShardName& name) {
    const std::string content = Content(1, 100);
    auto upload = store.BeginUpload(name, InfoOf(content));
    if (!upload.ok()) return upload.status();
    const absl::Status status = AppendAll(upload->get(), content);
    return status.ok() ? (*upload)->Publish() : status;
  }
};

TEST_F(PartitionSyncTest, ARewindIsNoReasonToBeTurnedAway) {
  StoreSyncClient::Answer answer = Answer();
  answer.context.generation = 2;
  ASSERT_THAT(sync.Take(answer), IsOk());

  EXPECT_EQ(sync.context().run_id, kRun);
  EXPECT_EQ(sync.context().term, 3u);
  EXPECT_EQ(sync.context().generation, std::nullopt);
}

TEST_F(PartitionSyncTest, ReportsWhoItIsAndRegistersForEver) {
  EXPECT_THAT(store.Check({kRun, 3, 9, std::nullopt}), StatusIs(absl::StatusCode::kUnavailable));
  const StoreReport report = sync.Report();
  EXPECT_EQ(report.server.role, ServerRole::kPartition);
  EXPECT_EQ(report.server.store_id, store.store_id());
  EXPECT_EQ(report.server.address, "host:1");
  EXPECT_FALSE(report.server.durable);
  EXPECT_EQ(report.free_bytes, static_cast<uint64_t>(1 << 20));

  ASSERT_THAT(sync.Take(Answer()), IsOk());

  EXPECT_EQ(sync.known_revision(), 17u);
  EXPECT_THAT(store.Check({kRun, 3, 9, std::nullopt}), IsOk());
  StoreSyncClient::Answer other = Answer();
  other.context.run_id = std::string(32, 'b');
  EXPECT_THAT(sync.Take(other), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(PartitionSyncTest, EdgesAreOnDiskAtOnceAndKeptByTheirToken) {
  const ShardName edges = {{{kEdgesType, 0}, 7}, 0};
  ASSERT_THAT(PutIn(edges), IsOk());
  ASSERT_THAT(PutIn(kName), IsOk());

  EXPECT_EQ(store.PlaceOf(edges), (Place{store.store_id(), 0}));
  EXPECT_THAT(store.Passing(), ::testing::ElementsAre(kName));
  StoreSyncClient::Answer answer = Answer();
  answer.instructions.keep_list = KeepList{7, {}, {7}};
  ASSERT_THAT(sync.Take(answer), IsOk());
  EXPECT_THAT(store.Verify(edges), IsOk());
  answer.instructions.keep_list = KeepList{7, {}, {}};
  ASSERT_THAT(sync.Take(answer), IsOk());
  EXPECT_THAT(store.Stat(edges), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PartitionSyncTest, AKeepListIsSwept) {
  ASSERT_THAT(PutIn(kName), IsOk());
  ASSERT_THAT(PutIn(kOther), IsOk());
  StoreSyncClient::Answer answer = Answer();
  answer.instructions.keep_list = KeepList{7, {kName.version}, {}};

  ASSERT_THAT(sync.Take(answer), IsOk());

  EXPECT_THAT(store.Stat(kName), IsOk());
  EXPECT_THAT(store.Stat(kOther), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PartitionSyncTest, AnOrderRunsOnceUntilItsResultHasArrived) {
  ASSERT_THAT(PutIn(kName), IsOk());
  StoreSyncClient::Answer answer = Answer();
  answer.instructions.orders = {{5, PersistShards{{kName}}}};
  ASSERT_THAT(sync.Take(answer), IsOk());
  WaitForChanges(1);

  // Given again before the result was reported: it is not begun again.
  ASSERT_THAT(sync.Take(answer), IsOk());
  const StoreReport report = sync.Report();
  ASSERT_EQ(report.results.size(), 1u);
  EXPECT_EQ(report.results[0].order_id, 5u);
  EXPECT_THAT(report.results[0].status, IsOk());
  EXPECT_EQ(report.persisted, std::vector<ShardName>{kName});
  // The call failed: the same is reported again.
  EXPECT_EQ(sync.Report().results.size(), 1u);

  ASSERT_THAT(sync.Take(Answer()), IsOk());
  EXPECT_TRUE(sync.Report().results.empty());
  EXPECT_TRUE(sync.Report().persisted.empty());
  EXPECT_EQ(changes, 1);
}

TEST_F(PartitionSyncTest, WhatCouldNotBePersistedIsNotReportedAsPersisted) {
  ASSERT_THAT(PutIn(kName), IsOk());
  disk_faults->append = absl::ResourceExhaustedError("disk full");
  StoreSyncClient::Answer answer = Answer();
  answer.instructions.orders = {{5, PersistShards{{kName}}}};

  ASSERT_THAT(sync.Take(answer), IsOk());
  WaitForChanges(1);

  const StoreReport report = sync.Report();
  ASSERT_EQ(report.results.size(), 1u);
  EXPECT_THAT(report.results[0].status, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(report.persisted.empty());
}

TEST_F(PartitionSyncTest, PersistAllMakesDurableWhatWouldEndWithTheProcess) {
  ASSERT_THAT(PutIn(kName), IsOk());
  ASSERT_THAT(PutIn(kOther), IsOk());
  ASSERT_THAT(store.Persist(kOther), IsOk());

  ASSERT_THAT(sync.PersistAll(), IsOk());

  EXPECT_EQ(sync.Report().persisted, std::vector<ShardName>{kName});
  EXPECT_TRUE(store.Passing().empty());
  EXPECT_EQ(store.PlaceOf(kName), (Place{store.store_id(), 0}));
}

TEST_F(PartitionSyncTest, AStoreThatCanWriteNoMoreHasNoRoom) {
  ASSERT_THAT(PutIn(kName), IsOk());
  disk_faults->seal = absl::InternalError("EIO");
  EXPECT_THAT(store.Persist(kName), StatusIs(absl::StatusCode::kInternal));

  EXPECT_EQ(sync.Report().free_bytes, 0u);
  EXPECT_THAT(store.write_status(), StatusIs(absl::StatusCode::kInternal));
}

}  // namespace
}  // namespace weft::testing
