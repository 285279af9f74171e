#include "services/common/run_fence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

RunContext Context(Term term, Incarnation lock_server, Generation generation) {
  return {"run-a", term, lock_server, generation};
}

TEST(RunFenceTest, TakesTheFirstContextItHears) {
  RunFence fence;

  ASSERT_THAT(fence.Check(Context(3, 77, 1)), IsOk());

  EXPECT_EQ(fence.known(), Context(3, 77, 1));
}

TEST(RunFenceTest, RefusesAnotherRunWithBothIds) {
  RunFence fence(Context(3, 77, 1));
  RunContext other = Context(9, 78, 9);
  other.run_id = "run-b";

  EXPECT_THAT(fence.Check(other), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           AllOf(HasSubstr("run-a"), HasSubstr("run-b"))));
  EXPECT_EQ(fence.known(), Context(3, 77, 1));
}

TEST(RunFenceTest, TermsOnlyGrow) {
  RunFence fence(Context(3, 77, 1));

  ASSERT_THAT(fence.Check(Context(4, 78, 1)), IsOk());

  // Not Aborted: sessions outlive the lock server, and their trainers hear of its new term.
  EXPECT_THAT(fence.Check(Context(3, 77, 1)), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(fence.known(), Context(4, 78, 1));
}

TEST(RunFenceTest, RefusesASecondLockServerInOneTerm) {
  RunFence fence(Context(3, 77, 1));

  EXPECT_THAT(fence.Check(Context(3, 78, 1)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("two lock servers")));
  EXPECT_THAT(fence.Check(Context(3, 77, 1)), IsOk());
}

TEST(RunFenceTest, RefusesALowerGenerationAndRemembersAHigherOne) {
  RunFence fence(Context(3, 77, 1));

  ASSERT_THAT(fence.Check(Context(3, 77, 2)), IsOk());

  EXPECT_THAT(fence.Check(Context(3, 77, 1)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("rewound")));
}

TEST(RunFenceTest, ARefusedContextChangesNothing) {
  RunFence fence(Context(3, 77, 2));

  EXPECT_THAT(fence.Check(Context(4, 78, 1)), StatusIs(absl::StatusCode::kAborted));

  EXPECT_EQ(fence.known(), Context(3, 77, 2));
}

TEST(RunFenceTest, EmptyPartsAreNotCompared) {
  RunFence fence(Context(3, 77, 2));

  EXPECT_THAT(fence.Check(RunContext{}), IsOk());

  EXPECT_EQ(fence.known(), Context(3, 77, 2));
}

}  // namespace
}  // namespace weft
