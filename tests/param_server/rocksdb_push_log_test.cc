#include "services/param_server/rocksdb_push_log.h"

#include <vector>

#include "services/common/check.h"
#include "services/param_server/row_block_store.h"
#include "tests/param_server/push_log_contract.h"
#include "tests/param_server/store_fixture.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using testing::IsOk;
using testing::MakePushLog;
using testing::PushLogContract;
using testing::StatusIs;
using testing::StoreFixture;
using testing::TempDir;

std::unique_ptr<PushLog> MakeLog() {
  static std::vector<std::unique_ptr<TempDir>> folders;
  folders.push_back(std::make_unique<TempDir>());
  auto log = RocksDbPushLog::Open(folders.back()->path() + "/log");
  WEFT_CHECK(log.ok());
  return *std::move(log);
}

TEST(RocksDbPushLogTest, AFolderIsOpenedOnce) {
  TempDir dir;
  auto log = RocksDbPushLog::Open(dir.path() + "/log");
  ASSERT_THAT(log, IsOk());

  EXPECT_THAT(RocksDbPushLog::Open(dir.path() + "/log"), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(RocksDbPushLogTest, AStoreIsThereAgainAfterAReopen) {
  TempDir dir;
  {
    auto log = RocksDbPushLog::Open(dir.path() + "/log");
    ASSERT_THAT(log, IsOk());
    StoreFixture fixture(log->get());
    fixture.InstallZeros();
    fixture.Join(7);
    ASSERT_THAT(fixture.Push(7, 1, {{0, 1, {3, 4}}}), IsOk());
  }
  auto log = RocksDbPushLog::Open(dir.path() + "/log");
  ASSERT_THAT(log, IsOk());
  StoreFixture fixture(log->get());

  EXPECT_EQ(fixture.Row(0, 1), (std::vector<float>{3, 4}));
  // Applied once only: the number is there too.
  const auto again = fixture.Push(7, 1, {{0, 1, {3, 4}}});
  ASSERT_THAT(again, IsOk());
  EXPECT_FALSE(again->applied);
  EXPECT_EQ(fixture.Row(0, 1), (std::vector<float>{3, 4}));
}

}  // namespace

namespace testing {

INSTANTIATE_TEST_SUITE_P(RocksDb, PushLogContract, ::testing::Values(MakePushLog(MakeLog)));

}  // namespace testing
}  // namespace weft
