#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "services/trainer/bucket_pipeline.h"
#include "services/trainer/hogwild_pool.h"
#include "tests/testing/status_matchers.h"
#include "tests/trainer/training_fakes.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using testing::FakeParamClient;
using testing::FakePartitionClient;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

using Source = GrantedPartition::Source;

// Accepts every release.
class AcceptingLockClient : public LockClient {
 public:
  absl::StatusOr<AcquireResult> AcquireBucket(const AcquireRequest&) override {
    return AcquireResult();
  }
  absl::StatusOr<ReleaseResult> ReleaseBucket(const ReleaseRequest&) override {
    ++releases;
    return ReleaseResult();
  }
  absl::Status AbandonBucket(Token) override { return absl::OkStatus(); }
  absl::Status ReportFailure(Token, const TrainingFailure&) override { return absl::OkStatus(); }
  absl::Status Leave() override { return absl::OkStatus(); }

  std::atomic<int> releases = 0;
};

// One entity type in six partitions of ten entities.
class BucketPipelineTest : public ::testing::Test {
 protected:
  BucketPipelineTest() {
    task_.config.entities = {{"user", 6, false, {}}};
    task_.config.relations = {{"knows"}};
    task_.config.dimension = 4;
    task_.config.init_scale = 1;
    task_.seed = 1;
    task_.entity_counts = {std::vector<int64_t>(6, 10)};
    task_.spec = *MakeModelSpec(task_.config, 0);
    for (PartitionId p = 0; p < 6; ++p) {
      EmbeddingPartition stored(10, 4);
      stored.embeddings.data()[0] = static_cast<float>(p);
      EXPECT_THAT(partitions_.Store({{0, p}, 1}, stored), IsOk());
    }
  }

  BucketPipeline Make(const BucketPipeline::Options& options) {
    return BucketPipeline(task_, options, &lock_, &params_, &partitions_, &pool_);
  }

  struct Wanted {
    PartitionId partition = 0;
    Source source = Source::kRead;
    Token base = 1;
  };
  static Grant MakeGrant(Token token, const std::vector<Wanted>& wanted) {
    Grant grant;
    grant.token = token;
    for (const Wanted& w : wanted) grant.partitions.push_back({{0, w.partition}, w.base, w.source});
    return grant;
  }

  static PartitionKey Key(PartitionId p) { return {0, p}; }

  TrainingTask task_;
  HogwildPool pool_{2};
  AcceptingLockClient lock_;
  FakeParamClient params_{task_};
  FakePartitionClient partitions_;
};

TEST_F(BucketPipelineTest, ACopyHasANameOnlyWhileItIsNotTrained) {
  BucketPipeline pipeline = Make({.prefetch = false});
  EXPECT_THAT(pipeline.Resident(), IsEmpty());
  const Grant grant = MakeGrant(10, {{0}, {1}});

  ASSERT_THAT(pipeline.Load(grant), IsOk());
  EXPECT_THAT(pipeline.Resident(), IsEmpty());
  EXPECT_EQ(pipeline.partition(Key(1)).embeddings.data()[0], 1);

  ASSERT_THAT(pipeline.Finish(grant, {}), IsOk());
  EXPECT_THAT(pipeline.Resident(),
              ElementsAre(PartitionVersion{Key(0), 10}, PartitionVersion{Key(1), 10}));
  ASSERT_THAT(pipeline.Drain(), IsOk());
  EXPECT_EQ(lock_.releases, 1);
}

TEST_F(BucketPipelineTest, DiscardedCopiesHaveNoName) {
  BucketPipeline pipeline = Make({.prefetch = false});
  ASSERT_THAT(pipeline.Load(MakeGrant(10, {{0}})), IsOk());
  pipeline.Discard();
  EXPECT_THAT(pipeline.Resident(), IsEmpty());
}

TEST_F(BucketPipelineTest, WhatIsBeingStoredIsClonedForTheNextGrant) {
  std::atomic<bool> go_on = false;
  partitions_.before_store = [&] {
    while (!go_on) std::this_thread::yield();
  };
  BucketPipeline pipeline = Make({.prefetch = false});
  const Grant first = MakeGrant(10, {{0}});
  ASSERT_THAT(pipeline.Load(first), IsOk());
  const float* const stored = pipeline.partition(Key(0)).embeddings.data();
  pipeline.partition(Key(0)).embeddings.data()[1] = 7;
  pipeline.partition(Key(0)).adagrad_sums.data()[9] = 8;
  ASSERT_THAT(pipeline.Finish(first, {}), IsOk());

  ASSERT_THAT(pipeline.Load(MakeGrant(11, {{0, Source::kKeep, 10}})), IsOk());

  EmbeddingPartition& clone = pipeline.partition(Key(0));
  EXPECT_NE(clone.embeddings.data(), stored);
  EXPECT_EQ(clone.embeddings.data()[1], 7);
  EXPECT_EQ(clone.adagrad_sums.data()[9], 8);
  clone.embeddings.data()[1] = 100;
  go_on = true;
  ASSERT_THAT(pipeline.Drain(), IsOk());
  EXPECT_EQ(partitions_.Get(Key(0), 10)->embeddings.data()[1], 7);
}

TEST_F(BucketPipelineTest, WhatIsStoredIsKeptWithoutACopy) {
  BucketPipeline pipeline = Make({.prefetch = false, .background_store = false});
  const Grant first = MakeGrant(10, {{0}});
  ASSERT_THAT(pipeline.Load(first), IsOk());
  const float* const memory = pipeline.partition(Key(0)).embeddings.data();
  ASSERT_THAT(pipeline.Finish(first, {}), IsOk());
  ASSERT_THAT(pipeline.Load(MakeGrant(11, {{0, Source::kKeep, 10}})), IsOk());
  EXPECT_EQ(pipeline.partition(Key(0)).embeddings.data(), memory);
}

// A caller that saw "no longer storing" and no error would wait for others with nothing to come.
TEST_F(BucketPipelineTest, WhatIsNoLongerStoredHasToldItsError) {
  params_.flush_error = absl::ResourceExhaustedError("disk full");
  BucketPipeline pipeline = Make({.prefetch = false});
  const Grant grant = MakeGrant(10, {{0}});
  ASSERT_THAT(pipeline.Load(grant), IsOk());
  ASSERT_THAT(pipeline.Finish(grant, {}), IsOk());

  absl::StatusOr<bool> storing = true;
  while (storing.ok() && *storing) storing = pipeline.IsStoring();

  EXPECT_THAT(storing, StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
}

TEST_F(BucketPipelineTest, ACopyOfAnotherVersionIsReadAnew) {
  BucketPipeline pipeline = Make({.prefetch = false, .background_store = false});
  const Grant first = MakeGrant(10, {{0}});
  ASSERT_THAT(pipeline.Load(first), IsOk());
  pipeline.partition(Key(0)).embeddings.data()[0] = 50;
  ASSERT_THAT(pipeline.Finish(first, {}), IsOk());
  ASSERT_THAT(pipeline.Load(MakeGrant(11, {{0, Source::kRead, 1}})), IsOk());
  EXPECT_EQ(pipeline.partition(Key(0)).embeddings.data()[0], 0);
}

TEST_F(BucketPipelineTest, InitialPartitionsAreDrawnAsAnybodyWould) {
  BucketPipeline pipeline = Make({});
  ASSERT_THAT(pipeline.Load(MakeGrant(10, {{3, Source::kInitialise, kInitialToken}})), IsOk());
  const EmbeddingPartition expected = MakeInitialEmbeddings(1, Key(3), 10, 4, 1);
  EXPECT_TRUE(
      std::ranges::equal(pipeline.partition(Key(3)).embeddings.span(), expected.embeddings.span()));
}

TEST_F(BucketPipelineTest, CopiesGoInTheOrderOfTheGrantWhenRoomIsShort) {
  BucketPipeline pipeline = Make({.prefetch = false, .resident_partitions = 4});
  for (const Grant& grant : {MakeGrant(10, {{0}, {1}}), MakeGrant(11, {{2}, {3}})}) {
    ASSERT_THAT(pipeline.Load(grant), IsOk());
    ASSERT_THAT(pipeline.Finish(grant, {}), IsOk());
  }
  EXPECT_EQ(pipeline.Resident().size(), 4u);
  Grant third = MakeGrant(12, {{4}, {5}});
  third.let_go = {Key(2), Key(0), Key(3), Key(1)};

  ASSERT_THAT(pipeline.Load(third), IsOk());

  EXPECT_THAT(pipeline.Resident(),
              ElementsAre(PartitionVersion{Key(1), 10}, PartitionVersion{Key(3), 11}));
}

TEST_F(BucketPipelineTest, HintedVersionsAreReadAheadAndUsed) {
  BucketPipeline pipeline = Make({});
  const Grant first = MakeGrant(10, {{0}});
  ASSERT_THAT(pipeline.Load(first), IsOk());
  pipeline.Prefetch({{Key(2), 1}});
  ASSERT_THAT(pipeline.Finish(first, {}), IsOk());
  EXPECT_THAT(pipeline.Resident(),
              ElementsAre(PartitionVersion{Key(0), 10}, PartitionVersion{Key(2), 1}));
  const int reads_of_first = 1;

  ASSERT_THAT(pipeline.Load(MakeGrant(11, {{2, Source::kKeep, 1}})), IsOk());

  EXPECT_EQ(pipeline.partition(Key(2)).embeddings.data()[0], 2);
  EXPECT_EQ(partitions_.reads(), reads_of_first + 1);
}

TEST_F(BucketPipelineTest, AVersionThatCouldNotBeReadAheadIsReadWhenItIsThere) {
  BucketPipeline pipeline = Make({});
  const Grant first = MakeGrant(10, {{0}});
  ASSERT_THAT(pipeline.Load(first), IsOk());
  pipeline.Prefetch({{Key(2), 9}});  // not stored yet
  ASSERT_THAT(pipeline.Finish(first, {}), IsOk());
  while (partitions_.reads() < 2) std::this_thread::yield();
  EmbeddingPartition late(10, 4);
  late.embeddings.data()[0] = 99;
  ASSERT_THAT(partitions_.Store({Key(2), 9}, late), IsOk());

  ASSERT_THAT(pipeline.Load(MakeGrant(11, {{2, Source::kKeep, 9}})), IsOk());

  EXPECT_EQ(pipeline.partition(Key(2)).embeddings.data()[0], 99);
}

TEST_F(BucketPipelineTest, AHintedVersionThatIsBeingStoredIsNotReadBack) {
  std::atomic<bool> go_on = false;
  partitions_.before_store = [&] {
    while (!go_on) std::this_thread::yield();
  };
  BucketPipeline pipeline = Make({});
  const Grant first = MakeGrant(10, {{0}});
  ASSERT_THAT(pipeline.Load(first), IsOk());
  pipeline.partition(Key(0)).embeddings.data()[1] = 7;
  ASSERT_THAT(pipeline.Finish(first, {}), IsOk());
  Grant second = MakeGrant(11, {{1}, {2}});
  second.hint = {{Key(0), 10}};
  ASSERT_THAT(pipeline.Load(second), IsOk());
  EXPECT_THAT(pipeline.Resident(), IsEmpty());  // there was no room

  pipeline.Prefetch(second.hint);
  go_on = true;
  ASSERT_THAT(pipeline.Finish(second, {}), IsOk());
  ASSERT_THAT(pipeline.Load(MakeGrant(12, {{0, Source::kKeep, 10}})), IsOk());

  EXPECT_EQ(pipeline.partition(Key(0)).embeddings.data()[1], 7);
  EXPECT_EQ(partitions_.reads(), 3);  // partitions 0, 1 and 2, once each
}

TEST_F(BucketPipelineTest, ForgettingLeavesNoNames) {
  BucketPipeline pipeline = Make({});
  const Grant first = MakeGrant(10, {{0}, {1}});
  ASSERT_THAT(pipeline.Load(first), IsOk());
  ASSERT_THAT(pipeline.Finish(first, {}), IsOk());
  pipeline.Forget();
  EXPECT_THAT(pipeline.Resident(), IsEmpty());
}

}  // namespace
}  // namespace weft
