#include "services/trainer/local/local_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/local_run_fixture.h"

namespace weft {
namespace {

using testing::CountingTrainer;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::LocalDataOptions;
using testing::MakeLocalData;
using testing::ReadCounts;
using testing::StatusIs;
using testing::UsesInPass;
using testing::VersionCounts;

std::string ReadOrEmpty(const std::string& path) { return ReadFile(path).value_or(""); }

// Opens the run and trains it to its end.
absl::Status TrainAll(const RunConfig& config, const LocalDataOptions& data) {
  WEFT_ASSIGN_OR_RETURN(const auto run, LocalRun::Open(config, {}));
  return CountingTrainer(run.get(), data).Train();
}

TEST(LocalRunTest, OnePartitionIsTrainedAndCommittedEveryPass) {
  const testing::TempDir dir;
  const LocalDataOptions data;
  const RunConfig config = MakeLocalData(dir.path(), data);

  ASSERT_THAT(TrainAll(config, data), IsOk());

  EXPECT_EQ(ReadOrEmpty(config.checkpoint_path + "/checkpoint_version.txt"), "2\n");
  const absl::StatusOr<VersionCounts> counts = ReadCounts(config, 2);
  ASSERT_THAT(counts, IsOk());
  EXPECT_EQ(counts->tables.at("user_0"), 2);
  EXPECT_EQ(counts->parameters, 2);
  EXPECT_FALSE(std::filesystem::exists(config.checkpoint_path + "/model.v1.h5"));
}

TEST(LocalRunTest, EveryBucketOfEveryPassIsTrainedOnceOverSeveralPartitions) {
  const testing::TempDir dir;
  const LocalDataOptions data = {.num_partitions = 4, .with_items = true};
  const RunConfig config = MakeLocalData(dir.path(), data);

  ASSERT_THAT(TrainAll(config, data), IsOk());

  const absl::StatusOr<VersionCounts> counts = ReadCounts(config, 2);
  ASSERT_THAT(counts, IsOk());
  for (int p = 0; p < 4; ++p) {
    EXPECT_EQ(counts->tables.at(absl::StrCat("user_", p)), 2 * UsesInPass(data, p));
  }
  EXPECT_EQ(counts->tables.at("item_0"), 32);
  EXPECT_EQ(counts->parameters, 32);
}

}  // namespace
}  // namespace weft
