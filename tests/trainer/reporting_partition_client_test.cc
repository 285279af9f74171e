#include "services/trainer/cluster/reporting_partition_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

constexpr PartitionVersion kVersion = {{0, 3}, 10};

// Gives what the test says.
class FakePartitionClient : public PartitionClient {
 public:
  absl::Status Read(const PartitionVersion&, EmbeddingPartition*) override { return read(); }
  absl::Status Store(const PartitionVersion&, const EmbeddingPartition&) override {
    return absl::OkStatus();
  }
  std::function<absl::Status()> read = [] { return absl::OkStatus(); };
};

class ReportingPartitionClientTest : public ::testing::Test {
 protected:
  ReportingPartitionClientTest()
      : client_(
            &fake_, &places_,
            [this](Token grant, const PartitionVersion&, uint32_t shard, const Place& place) {
              EXPECT_EQ(grant, 20u);
              EXPECT_EQ(shard, 0u);
              reported_.push_back(place);
              return left_;
            },
            [this](int64_t bytes) { moved_ += bytes; },
            {.patience = absl::Milliseconds(100), .first_delay = absl::Milliseconds(1)}, &cancel_) {
  }

  // The version lies at stores 1 and 3.
  void Grant(bool as_base) {
    ShardInfo shard;
    shard.places = {{1, 0}, {3, 0}};
    std::vector<PartitionVersion> bases;
    if (as_base) bases.push_back(kVersion);
    places_.AddGrant(20, {{kVersion, {shard}}}, {}, 1, bases);
  }

  FakePartitionClient fake_;
  PlaceDirectory places_;
  CancelFlag cancel_;
  std::vector<Place> reported_;
  absl::StatusOr<std::vector<Place>> left_ = std::vector<Place>{};
  int64_t moved_ = 0;
  ReportingPartitionClient client_;
  EmbeddingPartition partition_{5, 3};
};

TEST_F(ReportingPartitionClientTest, TellsOfBytesThatMove) {
  EXPECT_THAT(client_.Read(kVersion, &partition_), IsOk());
  EXPECT_EQ(moved_, 5 * 4 * 4);
  EXPECT_THAT(client_.Store(kVersion, partition_), IsOk());
  EXPECT_EQ(moved_, 2 * 5 * 4 * 4);
}

TEST_F(ReportingPartitionClientTest, ABaseThatNoPlaceGivesIsReportedAndReadWhereTheLockServerSays) {
  Grant(/*as_base=*/true);
  left_ = std::vector<Place>{{2, 0}};
  fake_.read = [this] {
    if (places_.Find(kVersion)->shards[0].places[0] == Place{2, 0}) return absl::OkStatus();
    client_.NoteUnreadable({kVersion, 0}, {1, 0});
    client_.NoteUnreadable({kVersion, 0}, {3, 0});
    client_.NoteUnreadable({kVersion, 0}, {1, 0});  // asked again
    return absl::DataLossError("checksum mismatch");
  };

  EXPECT_THAT(client_.Read(kVersion, &partition_), IsOk());

  EXPECT_THAT(reported_, ElementsAre(Place{1, 0}, Place{3, 0}));
}

TEST_F(ReportingPartitionClientTest, APlaceThatCannotGiveItIsReportedThoughAnotherCould) {
  Grant(/*as_base=*/true);
  left_ = std::vector<Place>{{3, 0}};
  fake_.read = [this] {
    client_.NoteUnreadable({kVersion, 0}, {1, 0});
    return absl::OkStatus();
  };

  EXPECT_THAT(client_.Read(kVersion, &partition_), IsOk());

  EXPECT_THAT(reported_, ElementsAre(Place{1, 0}));
  EXPECT_THAT(places_.Find(kVersion)->shards[0].places, ElementsAre(Place{3, 0}));
}

TEST_F(ReportingPartitionClientTest, WhatOtherVersionsLackIsNotReportedWithThisOne) {
  Grant(/*as_base=*/true);
  client_.NoteUnreadable({{{0, 4}, 10}, 0}, {1, 0});

  EXPECT_THAT(client_.Read(kVersion, &partition_), IsOk());

  EXPECT_THAT(reported_, IsEmpty());
}

TEST_F(ReportingPartitionClientTest, AVersionThatLiesNowhereIsPassedUp) {
  Grant(/*as_base=*/true);
  fake_.read = [] { return absl::NotFoundError("the lock server named no place"); };

  EXPECT_THAT(client_.Read(kVersion, &partition_), StatusIs(absl::StatusCode::kNotFound));

  EXPECT_THAT(reported_, IsEmpty());
}

TEST_F(ReportingPartitionClientTest, WhatIsOnlyHintedIsNotReported) {
  Grant(/*as_base=*/false);
  fake_.read = [this] {
    client_.NoteUnreadable({kVersion, 0}, {1, 0});
    return absl::NotFoundError("not here");
  };

  EXPECT_THAT(client_.Read(kVersion, &partition_), StatusIs(absl::StatusCode::kNotFound));

  EXPECT_THAT(reported_, IsEmpty());
}

TEST_F(ReportingPartitionClientTest, OtherErrorsArePassedUp) {
  Grant(/*as_base=*/true);
  fake_.read = [] { return absl::UnavailableError("gave up"); };

  EXPECT_THAT(client_.Read(kVersion, &partition_), StatusIs(absl::StatusCode::kUnavailable));

  EXPECT_THAT(reported_, IsEmpty());
}

TEST_F(ReportingPartitionClientTest, AskingEndsWhenPatienceDoesOrTheSessionHasEnded) {
  Grant(/*as_base=*/true);
  fake_.read = [this] {
    client_.NoteUnreadable({kVersion, 0}, {1, 0});
    return absl::NotFoundError("not here");
  };

  EXPECT_THAT(client_.Read(kVersion, &partition_), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_GT(reported_.size(), 1u);

  left_ = absl::AbortedError("rewound");
  EXPECT_THAT(client_.Read(kVersion, &partition_), StatusIs(absl::StatusCode::kAborted));
}

}  // namespace
}  // namespace weft
