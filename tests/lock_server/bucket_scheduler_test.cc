#include "services/lock_server/bucket_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/lock_server/scheduler_shapes.h"

namespace weft {
namespace {

using testing::Bipartite;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kAllFurther;
using testing::kNoFurther;
using testing::Lexicographic;
using testing::OneType;
using ::testing::Optional;
using ::testing::UnorderedElementsAre;

BucketScheduler Begun(const BucketScheduler::Options& options, std::vector<Bucket> done = {}) {
  BucketScheduler scheduler(options);
  scheduler.BeginPass(Lexicographic(options.num_lhs, options.num_rhs), done);
  return scheduler;
}

TEST(BucketSchedulerTest, SessionsShareNoPartition) {
  BucketScheduler scheduler = Begun(OneType(4));

  const std::vector<Bucket> first = scheduler.Grant({.session = 1}, 1, kNoFurther);
  const std::vector<Bucket> second = scheduler.Grant({.session = 2}, 2, kNoFurther);

  EXPECT_THAT(first, ElementsAre(Bucket{0, 0}));
  EXPECT_THAT(second, ElementsAre(Bucket{1, 1}));
}

TEST(BucketSchedulerTest, NothingIsGrantableWhenOthersHoldAllPartitionsOfWhatIsLeft) {
  BucketScheduler scheduler = Begun(OneType(2), {{0, 0}, {1, 1}});

  ASSERT_THAT(scheduler.Grant({.session = 1}, 1, kNoFurther), ElementsAre(Bucket{0, 1}));

  EXPECT_THAT(scheduler.Grant({.session = 2}, 2, kNoFurther), IsEmpty());
}

TEST(BucketSchedulerTest, OnlyBucketsThatTouchATrainedPartitionIfAsked) {
  for (const bool order_first : {false, true}) {
    BucketScheduler::Options options = OneType(4);
    options.order_first = order_first;
    BucketScheduler scheduler = Begun(options);
    BucketScheduler::Trained trained = {BitSet(4), BitSet(4)};
    EXPECT_THAT(scheduler.Grant({.session = 1, .trained = &trained}, 1, kNoFurther), IsEmpty());

    trained.lhs.Insert(2);
    trained.rhs.Insert(2);
    EXPECT_THAT(scheduler.Grant({.session = 1, .trained = &trained}, 1, kNoFurther),
                ElementsAre(order_first ? Bucket{0, 2} : Bucket{2, 2}));
    // Another session has that partition.
    EXPECT_THAT(scheduler.Grant({.session = 2, .trained = &trained}, 2, kNoFurther), IsEmpty());
  }
}

TEST(BucketSchedulerTest, ASessionMayHaveAnotherBucketOverItsOwnPartitions) {
  BucketScheduler scheduler = Begun(OneType(2), {{0, 0}, {1, 1}});

  ASSERT_THAT(scheduler.Grant({.session = 1}, 1, kNoFurther), ElementsAre(Bucket{0, 1}));

  EXPECT_THAT(scheduler.Grant({.session = 1}, 2, kNoFurther), ElementsAre(Bucket{1, 0}));
}

TEST(BucketSchedulerTest, PartitionsOfAnUnusableVersionAreNotGranted) {
  BucketScheduler scheduler = Begun(OneType(2), {{0, 0}, {1, 1}});
  ASSERT_THAT(scheduler.Grant({.session = 1}, 1, kNoFurther), ElementsAre(Bucket{0, 1}));
  const PartitionKey unusable[] = {{0, 0}};

  EXPECT_THAT(scheduler.Grant({.session = 1, .unusable = unusable}, 2, kNoFurther), IsEmpty());
}

TEST(BucketSchedulerTest, FinishLetsPartitionsGoAndBucketsAreDone) {
  BucketScheduler scheduler = Begun(OneType(2), {{0, 0}, {1, 1}});
  ASSERT_THAT(scheduler.Grant({.session = 1}, 1, kNoFurther), ElementsAre(Bucket{0, 1}));

  scheduler.Finish(1);

  EXPECT_EQ(scheduler.num_done(), 3);
  EXPECT_THAT(scheduler.Grant({.session = 2}, 2, kNoFurther), ElementsAre(Bucket{1, 0}));
}

TEST(BucketSchedulerTest, ReturnMakesBucketsFreeAgain) {
  BucketScheduler scheduler = Begun(OneType(2), {{0, 0}, {1, 1}});
  ASSERT_THAT(scheduler.Grant({.session = 1}, 1, kNoFurther), ElementsAre(Bucket{0, 1}));

  scheduler.Return(1);

  EXPECT_EQ(scheduler.num_done(), 2);
  EXPECT_THAT(scheduler.Grant({.session = 2}, 2, kNoFurther), ElementsAre(Bucket{0, 1}));
}

TEST(BucketSchedulerTest, PrefersWhatNeedsNoLoading) {
  BucketScheduler scheduler = Begun(OneType(4));
  const PartitionKey resident[] = {{0, 2}, {0, 3}};

  const auto bucket = scheduler.Grant({.session = 1, .resident = resident}, 1, kNoFurther);

  EXPECT_THAT(bucket, ElementsAre(Bucket{2, 3}));
}

TEST(BucketSchedulerTest, PrefersToUseWhatIsInMemory) {
  // A bucket with partition 2 needs one more to be loaded, and so does a diagonal one without it.
  BucketScheduler scheduler = Begun(OneType(4), {{2, 2}});
  const PartitionKey resident[] = {{0, 2}};

  const auto bucket = scheduler.Grant({.session = 1, .resident = resident}, 1, kNoFurther);

  EXPECT_THAT(bucket, ElementsAre(Bucket{0, 2}));
}

TEST(BucketSchedulerTest, PrefersADiagonalBucketWhenAllHasToBeLoaded) {
  BucketScheduler scheduler = Begun(OneType(3), {{0, 0}});

  EXPECT_THAT(scheduler.Grant({.session = 1}, 1, kNoFurther), ElementsAre(Bucket{1, 1}));
}

TEST(BucketSchedulerTest, KeepsTheLargerTypeInMemory) {
  BucketScheduler scheduler = Begun(Bipartite(3, 3), {{1, 1}});
  const PartitionKey resident[] = {{0, 1}, {1, 1}};  // users 1 (100 bytes), items 1 (1 byte)

  const auto bucket = scheduler.Grant({.session = 1, .resident = resident}, 1, kNoFurther);

  EXPECT_THAT(bucket, ElementsAre(Bucket{1, 0}));
}

TEST(BucketSchedulerTest, OrderFirstIgnoresWhatIsInMemory) {
  BucketScheduler::Options options = OneType(4);
  options.order_first = true;
  BucketScheduler scheduler = Begun(options);
  const PartitionKey resident[] = {{0, 2}, {0, 3}};

  const auto bucket = scheduler.Grant({.session = 1, .resident = resident}, 1, kNoFurther);

  EXPECT_THAT(bucket, ElementsAre(Bucket{0, 0}));
}

TEST(BucketSchedulerTest, TypesOfOneSideLockOnlyThere) {
  BucketScheduler scheduler = Begun(Bipartite(2, 2));

  ASSERT_THAT(scheduler.Grant({.session = 1}, 1, kNoFurther), ElementsAre(Bucket{0, 0}));

  // Users 1 and items 1 are free although the first session has the number 0 on both sides.
  EXPECT_THAT(scheduler.Grant({.session = 2}, 2, kNoFurther), ElementsAre(Bucket{1, 1}));
  EXPECT_THAT(scheduler.Grant({.session = 3}, 3, kNoFurther), IsEmpty());
}

TEST(BucketSchedulerTest, ASideWithOnePartitionLocksNothing) {
  BucketScheduler scheduler = Begun(
      {.num_lhs = 3, .num_rhs = 1, .types = {{.id = 0, .lhs = true, .rhs = false, .bytes = 8}}});

  for (uint64_t session = 1; session <= 3; ++session) {
    EXPECT_THAT(scheduler.Grant({.session = session}, session, kNoFurther),
                ElementsAre(Bucket{static_cast<int>(session) - 1, 0}));
  }
}

TEST(BucketSchedulerTest, WithoutPartitionsThereIsOneBucket) {
  BucketScheduler scheduler = Begun({});

  EXPECT_THAT(scheduler.Grant({.session = 1}, 1, kAllFurther), ElementsAre(Bucket{0, 0}));
  EXPECT_THAT(scheduler.PartitionsOf({0, 0}), IsEmpty());
}

TEST(BucketSchedulerTest, AGrantTakesFurtherBucketsOverTheSamePartitions) {
  BucketScheduler scheduler = Begun(OneType(3), {{0, 0}, {1, 1}, {2, 2}});

  EXPECT_THAT(scheduler.Grant({.session = 1}, 1, kAllFurther),
              ElementsAre(Bucket{0, 1}, Bucket{1, 0}));
}

TEST(BucketSchedulerTest, FurtherBucketsAreTakenInTheConfiguredOrderAndAsLongAsWanted) {
  BucketScheduler scheduler = Begun(OneType(2));
  const PartitionKey resident[] = {{0, 0}, {0, 1}};

  const auto buckets = scheduler.Grant(
      {.session = 1, .resident = resident}, 1,
      [](const std::vector<Bucket>& granted, Bucket) { return granted.size() < 3; });

  EXPECT_THAT(buckets, ElementsAre(Bucket{0, 1}, Bucket{0, 0}, Bucket{1, 0}));
}

TEST(BucketSchedulerTest, FurtherBucketsUseNoTypeThatTheFirstDoesNot) {
  // Type 0 on both sides, type 1 on the right only: (1, 0) needs partition 0 of type 1.
  BucketScheduler scheduler = Begun({.num_lhs = 2,
                                     .num_rhs = 2,
                                     .types = {{.id = 0, .lhs = true, .rhs = true, .bytes = 1},
                                               {.id = 1, .lhs = false, .rhs = true, .bytes = 1}}},
                                    {{0, 0}});
  const PartitionKey resident[] = {{0, 0}};

  const auto buckets = scheduler.Grant({.session = 1, .resident = resident}, 1, kAllFurther);

  // (1, 1) needs nothing that (0, 1) does not.
  EXPECT_THAT(buckets, ElementsAre(Bucket{0, 1}, Bucket{1, 1}));
}

TEST(BucketSchedulerTest, HintNamesTheNextBucketAndLocksNothing) {
  BucketScheduler scheduler = Begun(OneType(4));
  ASSERT_THAT(scheduler.Grant({.session = 1}, 1, kNoFurther), ElementsAre(Bucket{0, 0}));
  const PartitionKey resident[] = {{0, 0}};

  EXPECT_THAT(scheduler.Hint({.session = 1, .resident = resident}), Optional(Bucket{0, 1}));
  EXPECT_EQ(scheduler.num_granted(), 1);
}

TEST(BucketSchedulerTest, HintedPartitionsGoToOthersLast) {
  BucketScheduler scheduler = Begun(OneType(4));
  ASSERT_THAT(scheduler.Grant({.session = 1}, 1, kNoFurther), ElementsAre(Bucket{0, 0}));
  const PartitionKey resident[] = {{0, 0}};
  ASSERT_THAT(scheduler.Hint({.session = 1, .resident = resident}), Optional(Bucket{0, 1}));

  // Partition 1 comes first in the order, but is hinted to session 1.
  EXPECT_THAT(scheduler.Grant({.session = 2}, 2, kNoFurther), ElementsAre(Bucket{2, 2}));
  EXPECT_THAT(scheduler.Grant({.session = 3}, 3, kNoFurther), ElementsAre(Bucket{3, 3}));
  // Nobody waits because of a hint.
  EXPECT_THAT(scheduler.Grant({.session = 4}, 4, kNoFurther), ElementsAre(Bucket{1, 1}));
}

TEST(BucketSchedulerTest, OwnHintsDoNotHinder) {
  BucketScheduler scheduler = Begun(OneType(4));
  ASSERT_THAT(scheduler.Hint({.session = 1}), Optional(Bucket{0, 0}));

  EXPECT_THAT(scheduler.Grant({.session = 1}, 1, kNoFurther), ElementsAre(Bucket{0, 0}));
}

TEST(BucketSchedulerTest, AForgottenHintHindersNobody) {
  BucketScheduler scheduler = Begun(OneType(4));
  ASSERT_THAT(scheduler.Hint({.session = 1}), Optional(Bucket{0, 0}));

  scheduler.ForgetHint(1);

  EXPECT_THAT(scheduler.Grant({.session = 2}, 2, kNoFurther), ElementsAre(Bucket{0, 0}));
}

TEST(BucketSchedulerTest, PartitionsOfABucketAreNamedOnce) {
  BucketScheduler scheduler = Begun(OneType(2));

  EXPECT_THAT(scheduler.PartitionsOf({1, 1}), ElementsAre(PartitionKey{0, 1}));
  EXPECT_THAT(scheduler.PartitionsOf({0, 1}),
              UnorderedElementsAre(PartitionKey{0, 0}, PartitionKey{0, 1}));
}

TEST(BucketSchedulerTest, NextUseIsWhereTheOrderNeedsAPartitionFirst) {
  BucketScheduler scheduler = Begun(OneType(3), {{0, 0}, {0, 1}});

  EXPECT_EQ(scheduler.NextUse({0, 0}), 2u);  // (0, 2)
  EXPECT_EQ(scheduler.NextUse({0, 1}), 3u);  // (1, 0)
  EXPECT_EQ(scheduler.NextUse({0, 2}), 2u);
}

TEST(BucketSchedulerTest, NextUseIsNeverWhenAllBucketsOfAPartitionAreDone) {
  BucketScheduler scheduler = Begun(OneType(2), {{0, 0}, {0, 1}, {1, 0}});

  EXPECT_EQ(scheduler.NextUse({0, 0}), UINT64_MAX);
}

}  // namespace
}  // namespace weft
