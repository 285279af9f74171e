#include "services/param_server/memory_push_log.h"

#include "tests/param_server/push_log_contract.h"

namespace weft {
namespace {

using testing::IsOk;
using testing::MakePushLog;
using testing::PushLogContract;

std::string Keys(MemoryPushLog* log) {
  std::string keys;
  EXPECT_THAT(log->Scan("",
                        [&](std::string_view key, std::string_view) {
                          keys += key;
                          return absl::OkStatus();
                        }),
              IsOk());
  return keys;
}

TEST(MemoryPushLogTest, CrashKeepsWhatWasSyncedAndAPrefixOfTheRest) {
  MemoryPushLog log(/*keep_unsynced=*/true);
  ASSERT_THAT(log.Write({{"a", "1"}}), IsOk());
  ASSERT_THAT(log.Sync(), IsOk());
  ASSERT_THAT(log.Write({{"b", "2"}}), IsOk());
  ASSERT_THAT(log.Write({{"c", "3"}, {"a", {}, true}}), IsOk());
  EXPECT_EQ(log.num_unsynced(), 2);

  log.Crash(/*surviving=*/1);

  EXPECT_EQ(Keys(&log), "ab");
  EXPECT_EQ(log.num_unsynced(), 0);
}

}  // namespace

namespace testing {

INSTANTIATE_TEST_SUITE_P(Memory, PushLogContract,
                         ::testing::Values(MakePushLog([]() -> std::unique_ptr<PushLog> {
                           return std::make_unique<MemoryPushLog>();
                         })));

}  // namespace testing
}  // namespace weft
