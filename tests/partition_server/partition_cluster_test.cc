// A cluster of partition servers keeps the contract of a partition client.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "services/partition_server/cluster_partition_client.h"
#include "services/partition_server/grpc_blob_client.h"
#include "services/partition_server/partition_transfer.h"
#include "tests/partition_server/partition_client_contract.h"
#include "tests/partition_server/partition_server_fixture.h"

namespace weft::testing {
namespace {

using Keep = TestPartitionServer::Keep;

// A cluster of three memory stores, and its client under grants of all tokens.
class ClusterOfThree : public PartitionClient {
 public:
  ClusterOfThree(const std::string& folder, int64_t shard_bytes) {
    ServerList list;
    list.revision = 1;
    for (const char* name : {"/a", "/b", "/c"}) {
      servers_.push_back(std::make_unique<TestPartitionServer>(folder + name, Keep::kMemory));
      list.partition_servers.push_back(servers_.back()->info());
      stores_.push_back(list.partition_servers.back().store_id);
    }
    places_.SetServers(list);
    PartitionTransfer::Options options;
    options.shard_bytes = shard_bytes;
    transfer_ =
        std::make_unique<PartitionTransfer>(&blobs_, FindServerIn(&places_), &cancel_, options);
    client_ = std::make_unique<ClusterPartitionClient>(&places_, transfer_.get());
  }

  absl::Status Read(const PartitionVersion& version, EmbeddingPartition* out) override {
    VersionInfo info;
    {
      MutexLock lock(&mu_);
      const auto found = versions_.find(version);
      // Of one that is not stored: where another one lies.
      info = found != versions_.end() ? found->second : versions_.begin()->second;
      info.version = version;
      places_.AddGrant(next_grant_++, {info}, {}, 1);
    }
    return client_->Read(version, out);
  }
  absl::Status Store(const PartitionVersion& version,
                     const EmbeddingPartition& partition) override {
    MutexLock lock(&mu_);
    places_.AddGrant(version.token, {}, stores_, 2);
    const absl::Status status = client_->Store(version, partition);
    if (!status.ok()) return status;
    for (const VersionInfo& stored : places_.Stored(version.token)) {
      if (stored.version == version) versions_[version] = stored;
    }
    EXPECT_EQ(versions_[version].shards[0].places.size(), 2u);
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<TestPartitionServer>> servers_;
  std::vector<StoreId> stores_;
  PlaceDirectory places_;
  CancelFlag cancel_;
  ChannelPool channels_{{.connections = 2, .security = {}}};
  RunFence fence_{kContext};
  GrpcBlobClient blobs_{&channels_, &fence_, {}};
  std::unique_ptr<PartitionTransfer> transfer_;
  std::unique_ptr<ClusterPartitionClient> client_;
  Mutex mu_;
  std::map<PartitionVersion, VersionInfo> versions_;
  Token next_grant_ = 1'000'000;  // of reads
};

INSTANTIATE_TEST_SUITE_P(Cluster, PartitionClientContractTest,
                         ::testing::Values(
                             [](const std::string& folder) -> std::unique_ptr<PartitionClient> {
                               return std::make_unique<ClusterOfThree>(folder, 1 << 20);
                             },
                             [](const std::string& folder) -> std::unique_ptr<PartitionClient> {
                               return std::make_unique<ClusterOfThree>(folder, 1);  // a row a shard
                             }));

}  // namespace
}  // namespace weft::testing
