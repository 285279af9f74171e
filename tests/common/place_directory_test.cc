#include "services/common/place_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

constexpr PartitionKey kKey = {0, 3};

ServerInfo Store(StoreId id) {
  return {ServerRole::kPartition, id, id + 100, absl::StrCat("127.0.0.1:", id), true};
}

VersionInfo At(const PartitionVersion& version, std::vector<Place> places) {
  ShardInfo shard;
  shard.num_rows = 10;
  shard.places = std::move(places);
  return {version, {shard}};
}

std::vector<StoreId> Ids(const PlaceDirectory::StorePlan& plan) {
  std::vector<StoreId> ids;
  for (const ServerInfo& server : plan.servers) ids.push_back(server.store_id);
  return ids;
}

TEST(PlaceDirectoryTest, FindsWhatAGrantNamed) {
  PlaceDirectory places;
  places.AddGrant(20, {At({kKey, 10}, {{1, 0}})}, {}, 1);

  const auto found = places.Find({kKey, 10});

  ASSERT_THAT(found, IsOk());
  EXPECT_THAT(found->shards[0].places, ElementsAre(Place{1, 0}));
  EXPECT_THAT(places.Find({kKey, 11}), StatusIs(absl::StatusCode::kNotFound));
}

TEST(PlaceDirectoryTest, TheNewestPlacesCount) {
  PlaceDirectory places;
  places.AddGrant(20, {At({kKey, 10}, {{1, 0}})}, {}, 1);
  places.AddGrant(21, {At({kKey, 10}, {{2, 0}})}, {}, 1);

  EXPECT_THAT(places.Find({kKey, 10})->shards[0].places, ElementsAre(Place{2, 0}));

  places.SetPlaces({kKey, 10}, 0, {{3, 0}});
  EXPECT_THAT(places.Find({kKey, 10})->shards[0].places, ElementsAre(Place{3, 0}));
}

TEST(PlaceDirectoryTest, WhatTheSessionItselfHasStoredIsFoundBeforeItsRelease) {
  PlaceDirectory places;
  places.AddGrant(20, {}, {1}, 1);
  places.AddGrant(21, {VersionInfo{{kKey, 20}, {}}}, {1}, 1);
  EXPECT_THAT(places.Find({kKey, 20}), StatusIs(absl::StatusCode::kNotFound));

  places.SetStored(At({kKey, 20}, {{1, 0}}));

  ASSERT_THAT(places.Find({kKey, 20}), IsOk());
  EXPECT_THAT(places.Find({kKey, 20})->shards[0].places, ElementsAre(Place{1, 0}));
  places.Clear();
  EXPECT_THAT(places.Find({kKey, 20}), StatusIs(absl::StatusCode::kAborted));
}

TEST(PlaceDirectoryTest, PlansFollowTheLockServersOrderThenWhoeverElseIsThere) {
  PlaceDirectory places;
  places.SetServers({1, {Store(1), Store(2), Store(3)}, {}});
  places.AddGrant(20, {}, {3, 9, 1}, 2);

  const auto plan = places.PlanFor(20);

  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->replicas, 2);
  EXPECT_THAT(Ids(*plan), ElementsAre(3, 1, 2));
  places.DropGrant(20);
  EXPECT_THAT(places.PlanFor(20), StatusIs(absl::StatusCode::kAborted));
}

TEST(PlaceDirectoryTest, WithoutServersStoringWaits) {
  PlaceDirectory places;
  places.AddGrant(20, {}, {3}, 1);

  EXPECT_THAT(places.PlanFor(20), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(PlaceDirectoryTest, AnOlderServerListIsNotTaken) {
  PlaceDirectory places;
  places.SetServers({5, {Store(1)}, {}});
  places.SetServers({4, {Store(2)}, {}});

  EXPECT_TRUE(places.Server(1).has_value());
  EXPECT_FALSE(places.Server(2).has_value());
}

TEST(PlaceDirectoryTest, TellsWhatWasStoredUnderATokenTheLastTime) {
  PlaceDirectory places;
  places.AddGrant(20, {}, {1}, 1);
  places.SetStored(At({kKey, 20}, {{1, 101}}));
  places.SetStored(At({kKey, 20}, {{1, 102}}));
  places.SetStored(At({{0, 4}, 20}, {{2, 0}}));

  const std::vector<VersionInfo> stored = places.Stored(20);

  ASSERT_EQ(stored.size(), 2u);
  EXPECT_THAT(stored[0].shards[0].places, ElementsAre(Place{1, 102}));
  EXPECT_TRUE(places.Stored(21).empty());
}

TEST(PlaceDirectoryTest, KnowsWhichGrantStartsFromAVersion) {
  PlaceDirectory places;
  places.AddGrant(20, {At({kKey, 10}, {{1, 0}}), At({kKey, 11}, {{1, 0}})}, {}, 1, {{kKey, 10}});

  EXPECT_EQ(places.GrantFrom({kKey, 10}), Token{20});
  EXPECT_EQ(places.GrantFrom({kKey, 11}), std::nullopt);  // only hinted
  places.DropGrant(20);
  EXPECT_EQ(places.GrantFrom({kKey, 10}), std::nullopt);
}

TEST(PlaceDirectoryTest, ForgetsOldGrantsButNeverLiveOnes) {
  PlaceDirectory places;
  places.AddGrant(1, {At({kKey, 100}, {{1, 0}})}, {1}, 1);
  for (Token token = 2; token < 20; ++token) {
    places.AddGrant(token, {}, {1}, 1);
    places.DropGrant(token);
  }
  EXPECT_THAT(places.Find({kKey, 100}), IsOk());

  places.DropGrant(1);
  for (Token token = 20; token < 40; ++token) {
    places.AddGrant(token, {}, {1}, 1);
    places.DropGrant(token);
  }
  EXPECT_THAT(places.Find({kKey, 100}), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace weft
