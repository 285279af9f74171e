#include "services/partition_server/partition_transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/common/place_directory.h"
#include "services/partition_server/blob_store.h"
#include "services/partition_server/cluster_partition_client.h"
#include "services/partition_server/memory_blob_storage.h"
#include "tests/testing/status_matchers.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Stores 1, 2, 3 at addresses "1", "2", "3", in memory.
class FakeBlobTransfer : public BlobTransfer {
 public:
  FakeBlobTransfer() {
    for (const char* address : {"1", "2", "3"}) {
      stores_[address] =
          *BlobStore::Open(std::make_unique<MemoryBlobStorage>(1 << 24), {.reserve_bytes = 0});
    }
  }

  absl::StatusOr<Place> Put(const std::string& address, const ShardName& name, const BlobInfo& info,
                            absl::Span<const uint64_t> checksums, SegmentSource source) override {
    const absl::Status fault = Fault(address);
    if (!fault.ok()) return fault;
    auto upload = stores_[address]->BeginUpload(name, info);
    if (!upload.ok()) return upload.status();
    for (size_t i = 0; i < checksums.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      const absl::Status status = (*upload)->Append(index, checksums[i], source(index));
      if (!status.ok()) return status;
    }
    const absl::Status status = (*upload)->Publish();
    if (!status.ok()) return status;
    return Place{static_cast<StoreId>(address[0] - '0'), 77};
  }

  absl::Status Get(const std::string& address, const ShardName& name, const BlobInfo& info,
                   SegmentSink sink) override {
    const absl::Status fault = Fault(address);
    if (!fault.ok()) return fault;
    const auto reader = stores_[address]->OpenReader(name);
    if (!reader.ok()) return reader.status();
    for (int64_t i = 0; i < reader->num_segments(); ++i) {
      const auto segment = reader->Read(i);
      const absl::Status status =
          sink(i, reader->checksum(i) ^ (flip_checksums ? 1 : 0), {segment->bytes});
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // The next calls of this address fail so, one after the other.
  void Break(const std::string& address, const absl::Status& status, int times = 1) {
    MutexLock lock(&mu_);
    for (int i = 0; i < times; ++i) faults_[address].push_back(status);
  }
  int calls() const {
    MutexLock lock(&mu_);
    return calls_;
  }

  bool flip_checksums = false;

 private:
  absl::Status Fault(const std::string& address) {
    MutexLock lock(&mu_);
    ++calls_;
    std::vector<absl::Status>& faults = faults_[address];
    if (faults.empty()) return absl::OkStatus();
    absl::Status fault = faults.front();
    faults.erase(faults.begin());
    return fault;
  }

  std::map<std::string, std::unique_ptr<BlobStore>> stores_;
  mutable Mutex mu_;
  std::map<std::string, std::vector<absl::Status>> faults_;
  int calls_ = 0;
};

class PartitionTransferTest : public ::testing::Test {
 protected:
  PartitionTransferTest() {
    std::vector<ServerInfo> servers;
    for (const StoreId id : {1, 2, 3}) {
      servers.push_back({ServerRole::kPartition, id, 77, std::to_string(id), false});
    }
    all = servers;
    for (float& x : table.embeddings.span()) x = next_++;
    for (float& x : table.adagrad_sums.span()) x = next_++;
  }

  PartitionTransfer Client(int64_t shard_bytes = 1 << 20) {
    PartitionTransfer::Options options;
    options.shard_bytes = shard_bytes;
    options.retry.patience = absl::Milliseconds(20);
    options.retry.first_delay = absl::Milliseconds(1);
    options.on_unreadable = [this](const ShardName& name, const Place& place, const absl::Status&) {
      EXPECT_EQ(name.version, version);
      unreadable.push_back(place.store_id);
    };
    return PartitionTransfer(
        &transfer,
        [this](const Place& place) -> std::optional<ServerInfo> {
          const ServerInfo& server = all[place.store_id - 1];
          if (place.incarnation != server.incarnation) return std::nullopt;
          return server;
        },
        &cancel, options);
  }

  FindTargets At(std::vector<StoreId> stores, int replicas) {
    StoreTargets targets;
    for (const StoreId store : stores) targets.servers.push_back(all[store - 1]);
    targets.replicas = replicas;
    return [targets] { return targets; };
  }

  void ExpectReads(const VersionInfo& version) {
    EmbeddingPartition read(table.count(), table.dimension());
    ASSERT_THAT(Client().Read(version, &read), IsOk());
    EXPECT_EQ(Checksum(read), Checksum(table));
  }

  static std::vector<StoreId> StoresOf(const ShardInfo& shard) {
    std::vector<StoreId> stores;
    for (const Place& place : shard.places) stores.push_back(place.store_id);
    return stores;
  }

  FakeBlobTransfer transfer;
  std::vector<ServerInfo> all;
  CancelFlag cancel;
  EmbeddingPartition table{10, 3};
  const PartitionVersion version = {{0, 0}, 7};
  std::vector<StoreId> unreadable;  // stores that were reported

 private:
  float next_ = 0;
};

TEST_F(PartitionTransferTest, StoresAtTheBestStoreAndReadsItBack) {
  const auto stored = Client().Store(version, table, At({2, 1, 3}, 1));

  ASSERT_THAT(stored, IsOk());
  ASSERT_EQ(stored->shards.size(), 1u);
  EXPECT_THAT(stored->shards[0].places, ElementsAre(Place{2, 77}));
  ExpectReads(*stored);
}

TEST_F(PartitionTransferTest, ShardsAreSpreadOverTheStores) {
  const auto stored = Client(/*shard_bytes=*/64).Store(version, table, At({1, 2, 3}, 2));

  ASSERT_THAT(stored, IsOk());
  ASSERT_EQ(stored->shards.size(), 3u);
  EXPECT_THAT(StoresOf(stored->shards[0]), ElementsAre(1, 2));
  EXPECT_THAT(StoresOf(stored->shards[1]), ElementsAre(2, 3));
  EXPECT_THAT(StoresOf(stored->shards[2]), ElementsAre(3, 1));
  ExpectReads(*stored);
}

TEST_F(PartitionTransferTest, AFullOrAbsentStoreIsPassedBy) {
  for (const absl::Status& fault :
       {absl::ResourceExhaustedError("full"), absl::UnavailableError("down"),
        absl::InternalError("EIO"), absl::FailedPreconditionError("another run")}) {
    transfer.Break("1", fault);
    const auto stored = Client().Store(version, table, At({1, 2}, 1));
    ASSERT_THAT(stored, IsOk());
    EXPECT_THAT(StoresOf(stored->shards[0]), ElementsAre(2));
  }
}

TEST_F(PartitionTransferTest, FewerReplicasThanAskedForAreForTheReleaseToJudge) {
  transfer.Break("2", absl::UnavailableError("down"));

  const auto stored = Client().Store(version, table, At({1, 2}, 2));

  ASSERT_THAT(stored, IsOk());
  EXPECT_THAT(StoresOf(stored->shards[0]), ElementsAre(1));
}

TEST_F(PartitionTransferTest, AStoreUnderTwoNamesIsOneReplica) {
  all[1].address = "1";  // whose disk was replaced: it is store 1 now, and 2 is not forgotten yet

  const auto stored = Client().Store(version, table, At({1, 2, 3}, 2));

  ASSERT_THAT(stored, IsOk());
  EXPECT_THAT(StoresOf(stored->shards[0]), ElementsAre(1, 3));
}

TEST_F(PartitionTransferTest, WhatNoOtherStoreCanMendIsReturnedAtOnce) {
  for (const absl::Status& fault :
       {absl::AbortedError("lower term"), absl::AlreadyExistsError("another content")}) {
    transfer.Break("1", fault);
    const int before = transfer.calls();
    EXPECT_THAT(Client().Store(version, table, At({1, 2}, 1)), StatusIs(fault.code()));
    EXPECT_EQ(transfer.calls(), before + 1);
  }
}

TEST_F(PartitionTransferTest, AnOutageIsWaitedForUntilPatienceIsOver) {
  transfer.Break("1", absl::UnavailableError("down"), 2);
  EXPECT_THAT(Client().Store(version, table, At({1}, 1)), IsOk());

  transfer.Break("1", absl::UnavailableError("connection refused"), 1000);
  EXPECT_THAT(Client().Store(version, table, At({1}, 1)),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("partition server at 1"), HasSubstr("connection refused"))));
}

TEST_F(PartitionTransferTest, AStoreThatComesWhileOneWaitsIsTaken) {
  int asked = 0;
  const auto stored = Client().Store(version, table, [&]() -> absl::StatusOr<StoreTargets> {
    if (++asked < 3) return absl::UnavailableError("no partition server is registered");
    return StoreTargets{{all[0]}, 1};
  });

  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(asked, 3);
}

TEST_F(PartitionTransferTest, AGrantThatHasEndedEndsTheWait) {
  EXPECT_THAT(Client().Store(version, table, [] { return absl::AbortedError("ended"); }),
              StatusIs(absl::StatusCode::kAborted));
}

TEST_F(PartitionTransferTest, AWaitEndsWhenItIsCancelled) {
  transfer.Break("1", absl::UnavailableError("down"), 1000);
  cancel.Cancel();

  EXPECT_THAT(Client().Store(version, table, At({1}, 1)), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(PartitionTransferTest, ReadsFromTheNextPlaceWhenOneCannotGiveIt) {
  const auto stored = Client().Store(version, table, At({1, 2}, 2));
  ASSERT_THAT(stored, IsOk());

  for (const absl::Status& fault : {absl::NotFoundError("not here"), absl::DataLossError("damaged"),
                                    absl::UnavailableError("down"), absl::InternalError("EIO")}) {
    transfer.Break("1", fault);
    unreadable.clear();
    ExpectReads(*stored);
    // An outage is no statement about the shard.
    EXPECT_EQ(unreadable.size(), absl::IsNotFound(fault) || absl::IsDataLoss(fault) ? 1u : 0u);
  }
}

TEST_F(PartitionTransferTest, WhatAllPlacesSayIsFinalAndDamageSaysMoreThanAbsence) {
  const auto stored = Client().Store(version, table, At({1, 2}, 2));
  ASSERT_THAT(stored, IsOk());
  EmbeddingPartition read(10, 3);

  transfer.Break("1", absl::DataLossError("damaged"));
  transfer.Break("2", absl::NotFoundError("not here"));
  EXPECT_THAT(Client().Read(*stored, &read), StatusIs(absl::StatusCode::kDataLoss));

  // As long as one place is only down, nothing is final.
  transfer.Break("1", absl::DataLossError("damaged"), 1000);
  transfer.Break("2", absl::UnavailableError("down"), 1000);
  EXPECT_THAT(Client().Read(*stored, &read), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(PartitionTransferTest, ASegmentThatDoesNotFitItsChecksumIsDataLoss) {
  const auto stored = Client().Store(version, table, At({1}, 1));
  ASSERT_THAT(stored, IsOk());
  transfer.flip_checksums = true;
  EmbeddingPartition read(10, 3);

  EXPECT_THAT(Client().Read(*stored, &read),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("segment 0")));
}

TEST_F(PartitionTransferTest, APlaceOfAnEarlierIncarnationIsNotAsked) {
  auto stored = Client().Store(version, table, At({1, 2}, 2));
  ASSERT_THAT(stored, IsOk());
  stored->shards[0].places[0].incarnation = 76;
  const int before = transfer.calls();

  ExpectReads(*stored);

  EXPECT_EQ(transfer.calls(), before + 1);
}

TEST_F(PartitionTransferTest, AShardOfBytesIsStoredAndReadWhereItLies) {
  const std::string bytes(static_cast<size_t>(kSegmentBytes) + 10, 'x');
  ShardInfo shard;
  shard.shard = 1;
  transfer.Break("2", absl::UnavailableError("away"));

  ASSERT_THAT(Client().StoreShard(version, bytes, At({1, 2, 3}, 1), &shard), IsOk());

  EXPECT_EQ(shard.size_bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_THAT(StoresOf(shard), ElementsAre(3));
  std::string read(bytes.size(), ' ');
  ASSERT_THAT(Client().ReadShard(version, shard, {read.data(), read.size()}), IsOk());
  EXPECT_EQ(read, bytes);
  transfer.flip_checksums = true;
  EXPECT_THAT(Client().ReadShard(version, shard, {read.data(), read.size()}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("segment 0")));
}

// What a memory store wrote to its disk at its end is read from its next process.
TEST(FindServerInTest, AStoreIsFoundWhateverItsProcess) {
  PlaceDirectory places;
  ServerList servers;
  servers.partition_servers = {{ServerRole::kPartition, 11, 2, "host:1", false}};
  places.SetServers(servers);

  const std::optional<ServerInfo> server = FindServerIn(&places)(Place{11, 1});

  ASSERT_TRUE(server.has_value());
  EXPECT_EQ(server->address, "host:1");
  EXPECT_FALSE(FindServerIn(&places)(Place{12, 0}).has_value());
}

}  // namespace
}  // namespace weft::testing
