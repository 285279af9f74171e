// What a trainer reads from partition servers of which one has lost or damaged what it should have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "services/partition_server/cluster_partition_client.h"
#include "services/trainer/cluster/reporting_partition_client.h"
#include "tests/partition_server/partition_server_fixture.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::weft::testing::IsOk;
using ::weft::testing::kContext;
using ::weft::testing::TestPartitionServer;

constexpr PartitionVersion kVersion = {{0, 2}, 10};
constexpr Token kGrant = 20;

// A partition of one shard, at two servers; the first is asked first.
class UnreadableShardsTest : public ::testing::Test {
 protected:
  UnreadableShardsTest() {
    PartitionTransfer::Options options;
    options.retry.patience = absl::Seconds(5);
    options.on_unreadable = [this](const ShardName& shard, const Place& place,
                                   const absl::Status&) { reader_->NoteUnreadable(shard, place); };
    transfer_.emplace(&blobs_, FindServerIn(&places_), &cancel_, options);
    partitions_.emplace(&places_, &*transfer_);
    reader_.emplace(
        &*partitions_, &places_,
        [this](Token grant, const PartitionVersion& version, uint32_t shard,
               const Place& place) -> absl::StatusOr<std::vector<Place>> {
          EXPECT_EQ(grant, kGrant);
          EXPECT_EQ(version, kVersion);
          EXPECT_EQ(shard, 0u);
          reported_.push_back(place.store_id);
          return std::vector<Place>{PlaceAt(second_)};
        },
        [](int64_t) {}, RetryOptions{.patience = absl::Seconds(5)}, &cancel_);
    for (float& x : table_.embeddings.span()) x = ++next_;
    for (float& x : table_.adagrad_sums.span()) x = ++next_;
    places_.SetServers({1, {first_.info(), second_.info()}, {}});
    places_.AddGrant(kVersion.token, {}, {first_.info().store_id, second_.info().store_id}, 2);
    EXPECT_THAT(reader_->Store(kVersion, table_), IsOk());
    std::vector<VersionInfo> stored = places_.Stored(kVersion.token);
    EXPECT_EQ(stored.size(), 1u);
    EXPECT_THAT(stored[0].shards[0].places, ElementsAre(PlaceAt(first_), PlaceAt(second_)));
    places_.Clear();
    places_.AddGrant(kGrant, stored, {}, 2, {kVersion});
  }

  static Place PlaceAt(const TestPartitionServer& server) {
    return {server.info().store_id, server.info().incarnation};
  }

  void ExpectReads() {
    EmbeddingPartition read(table_.count(), table_.dimension());
    ASSERT_THAT(reader_->Read(kVersion, &read), IsOk());
    EXPECT_TRUE(std::ranges::equal(read.embeddings.span(), table_.embeddings.span()));
    EXPECT_TRUE(std::ranges::equal(read.adagrad_sums.span(), table_.adagrad_sums.span()));
  }

  const testing::TempDir folder_;
  TestPartitionServer first_{folder_.File("first"), TestPartitionServer::Keep::kMemory};
  TestPartitionServer second_{folder_.File("second"), TestPartitionServer::Keep::kMemory};
  ChannelPool channels_{{}};
  RunFence fence_{kContext};
  GrpcBlobClient blobs_{&channels_, &fence_, {}};
  PlaceDirectory places_;
  CancelFlag cancel_;
  std::optional<PartitionTransfer> transfer_;
  std::optional<ClusterPartitionClient> partitions_;
  std::optional<ReportingPartitionClient> reader_;
  EmbeddingPartition table_{50, 8};
  float next_ = 0;
  std::vector<StoreId> reported_;
};

TEST_F(UnreadableShardsTest, WhatIsDamagedIsReadElsewhereAndReportedOnce) {
  first_.faults->flip_bits = true;

  ExpectReads();
  EXPECT_THAT(reported_, ElementsAre(first_.info().store_id));

  ExpectReads();  // the place is no longer one of the version's
  EXPECT_EQ(reported_.size(), 1u);
}

TEST_F(UnreadableShardsTest, WhatIsNotThereIsReadElsewhereAndReportedOnce) {
  ASSERT_THAT(first_.store.Sweep({kVersion.token, {}}), IsOk());

  ExpectReads();

  EXPECT_THAT(reported_, ElementsAre(first_.info().store_id));
}

TEST_F(UnreadableShardsTest, AServerThatIsAwayIsNoReasonToReport) {
  first_.runner->Drain();

  ExpectReads();

  EXPECT_THAT(reported_, IsEmpty());
}

}  // namespace
}  // namespace weft
