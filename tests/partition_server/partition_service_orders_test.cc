// What the lock server orders of a partition server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/partition_server/blob_testing.h"
#include "tests/partition_server/partition_server_fixture.h"
#include "tests/partition_server/partition_service_fixture.h"

namespace weft::testing {
namespace {

TEST_F(PartitionServiceTest, APersistedBlobIsAllThatARestartedMemoryStoreHas) {
  const std::string content = Content(1, kSegmentBytes + 5);
  const ShardName passing = {{{0, 1}, 7}, 0};
  {
    const auto server = Start(Keep::kMemory);
    ASSERT_THAT(Put(*server, kName, content), IsOk());
    ASSERT_THAT(Put(*server, passing, content), IsOk());
    EXPECT_EQ(server->store.Passing().size(), 2u);

    const OrderResult result = server->orders.Execute({5, PersistShards{{kName}}}, {});

    EXPECT_EQ(result.order_id, 5u);
    ASSERT_THAT(result.status, IsOk());
    EXPECT_THAT(server->orders.Execute({5, PersistShards{{kName}}}, {}).status, IsOk());
    EXPECT_EQ(server->store.PlaceOf(kName).incarnation, 0u);
    EXPECT_EQ(server->store.Passing(), std::vector<ShardName>{passing});
    EXPECT_THAT(server->orders.Execute({6, PersistShards{{{{{0, 9}, 9}, 0}}}}, {}).status,
                StatusIs(absl::StatusCode::kNotFound));
  }

  const auto server = Start(Keep::kMemory);

  EXPECT_TRUE(*Get(*server, kName, InfoOf(content)) == content);
  EXPECT_THAT(Get(*server, passing, InfoOf(content)), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(server->store.PlaceOf(kName).incarnation, 0u);
}

TEST_F(PartitionServiceTest, OrdersCopyVerifyAndStoreManifests) {
  const auto from = Start(Keep::kMemory, "from");
  const auto to = Start(Keep::kMemory, "to");
  const std::string content = Content(1, 100);
  const auto place = Put(*from, kName, content);
  ASSERT_THAT(place, IsOk());
  ShardInfo shard;
  shard.size_bytes = 100;
  shard.xxh3 = InfoOf(content).checksum;
  shard.places = {*place};
  const std::vector<ServerInfo> servers = {to->info(), from->info()};

  const OrderResult copied = to->orders.Execute({1, CopyShard{kName.version, shard}}, servers);
  ASSERT_THAT(copied.status, IsOk());
  ASSERT_TRUE(copied.stored.has_value());
  EXPECT_EQ(copied.stored->shards[0].places[0].store_id, to->store.store_id());
  EXPECT_THAT(to->orders.Execute({2, VerifyShard{kName}}, servers).status, IsOk());

  const OrderResult manifest =
      to->orders.Execute({3, StoreManifest{{{kManifestType, 0}, 9}, "all tokens"}}, servers);
  ASSERT_THAT(manifest.status, IsOk());
  // A manifest is for the time after a loss: durable at once.
  EXPECT_EQ(manifest.stored->shards[0].places[0].incarnation, 0u);
  EXPECT_THAT(to->orders.Execute({4, CutParameters{}}, servers).status,
              StatusIs(absl::StatusCode::kInvalidArgument));

  ASSERT_THAT(to->store.Sweep({9, {kName.version}, {}}), IsOk());
  EXPECT_THAT(to->orders.Execute({5, VerifyShard{kName}}, servers).status, IsOk());
  EXPECT_THAT(to->orders.Execute({6, VerifyShard{{{{kManifestType, 0}, 9}, 0}}}, servers).status,
              StatusIs(absl::StatusCode::kNotFound));
  // A copy from a store that has restarted since asks nobody.
  shard.places[0].incarnation += 1;
  EXPECT_THAT(to->orders.Execute({7, CopyShard{{{3, 3}, 3}, shard}}, servers).status,
              StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace weft::testing
