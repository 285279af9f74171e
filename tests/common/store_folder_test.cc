#include "services/common/store_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/common/file_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kRun(32, 'a');
const std::string kOtherRun(32, 'b');

TEST(StoreFolderTest, TheStoreIdStaysAndTheIncarnationDoesNot) {
  const TempDir dir;
  const auto first = *StoreFolder::Open(dir.File("data"));
  const auto again = *StoreFolder::Open(dir.File("data"));
  const auto other = *StoreFolder::Open(dir.File("other"));

  EXPECT_NE(first->store_id(), 0u);
  EXPECT_EQ(first->store_id(), again->store_id());
  EXPECT_NE(first->store_id(), other->store_id());
  EXPECT_NE(first->incarnation(), 0u);
  EXPECT_NE(first->incarnation(), again->incarnation());
}

TEST(StoreFolderTest, IsBoundToOneRunForEver) {
  const TempDir dir;
  const auto folder = *StoreFolder::Open(dir.path());
  EXPECT_EQ(folder->run_id(), "");

  ASSERT_THAT(folder->BindRun(kRun), IsOk());
  EXPECT_THAT(folder->BindRun(kRun), IsOk());
  EXPECT_THAT(folder->BindRun(kOtherRun), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                   AllOf(HasSubstr(kRun), HasSubstr(kOtherRun))));

  const auto again = *StoreFolder::Open(dir.path());
  EXPECT_EQ(again->run_id(), kRun);
  EXPECT_THAT(again->BindRun(kOtherRun), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(StoreFolderTest, InMemoryItIsWhatItIsGivenAndBoundForEver) {
  const auto folder = StoreFolder::InMemory(7, 8, "");

  EXPECT_EQ(folder->store_id(), 7u);
  EXPECT_EQ(folder->incarnation(), 8u);
  ASSERT_THAT(folder->BindRun(kRun), IsOk());
  EXPECT_THAT(folder->BindRun(kOtherRun), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(StoreFolderTest, WhatIsNoRunIdIsRefused) {
  const TempDir dir;
  const auto folder = *StoreFolder::Open(dir.path());

  for (const std::string& id : {std::string(), std::string(31, 'a'), std::string(32, 'z')}) {
    EXPECT_THAT(folder->BindRun(id), StatusIs(absl::StatusCode::kInvalidArgument)) << id;
  }
}

TEST(StoreFolderTest, ADamagedFileIsDataLossAndNeverANewStore) {
  const TempDir dir;
  (*StoreFolder::Open(dir.path()))->BindRun(kRun).IgnoreError();
  const std::string good = *ReadFile(dir.File("store.id"));

  for (size_t cut = 0; cut < good.size(); ++cut) {
    // A file without its last line is that of a store before it is bound.
    if (good.substr(cut) == "run " + kRun + "\n") continue;
    ASSERT_THAT(WriteFileAtomically(dir.File("store.id"), good.substr(0, cut)), IsOk());
    EXPECT_THAT(StoreFolder::Open(dir.path()), StatusIs(absl::StatusCode::kDataLoss)) << cut;
  }
}

TEST(StoreFolderTest, ANewerFormatIsNamed) {
  const TempDir dir;
  ASSERT_THAT(WriteFileAtomically(dir.File("store.id"), "weft store 2\nanything\n"), IsOk());

  EXPECT_THAT(StoreFolder::Open(dir.path()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("format 2")));
}

}  // namespace
}  // namespace weft::testing
