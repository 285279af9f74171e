#include "services/trainer/reference_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/testing/status_matchers.h"
#include "tests/trainer/reference_step_case.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::DrawStepCase;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;
using ::weft::testing::StepCase;

TEST(ReferenceLoaderTest, OpensTheLibraryBesideTheProgramAndTrains) {
  const auto factory = LoadReferenceFactory();
  ASSERT_THAT(factory, IsOk());
  StepCase c = DrawStepCase({}, 1);
  const auto step = (*factory)->Make(c.spec, &c.parameters);
  ASSERT_THAT(step, IsOk());

  const auto stats = (*step)->Train(c.batch(), c.negatives, c.tables());

  ASSERT_THAT(stats, IsOk());
  EXPECT_EQ(stats->count, 5);
  EXPECT_EQ(c.parameters.steps, 1);
}

TEST(ReferenceLoaderTest, SaysWhichLibraryCannotBeOpened) {
  EXPECT_THAT(LoadReferenceFactoryFrom("/nowhere/libweft_nn.so"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("/nowhere/libweft_nn.so")));
}

TEST(ReferenceLoaderTest, RefusesAnotherLibrary) {
  EXPECT_THAT(LoadReferenceFactoryFrom("libm.so.6"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("libm.so.6: is not Weft's reference implementation")));
}

}  // namespace
}  // namespace weft
