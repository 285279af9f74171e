#include "services/lock_server/rocksdb_run_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/lock_server/cluster_fixture.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::MakeState;
using testing::StatusIs;
using testing::TempDir;

std::unique_ptr<RocksDbRunStore> MustOpen(const TempDir& dir) {
  auto store = RocksDbRunStore::Open(dir.File("run"));
  WEFT_CHECK(store.ok());
  return *std::move(store);
}

RunChange Session(SessionId id) { return SessionBegan{id, "t"}; }

TEST(RocksDbRunStoreTest, AFreshStoreHasNoState) {
  const TempDir dir;

  const auto state = MustOpen(dir)->Load();

  ASSERT_THAT(state, IsOk());
  EXPECT_FALSE(state->has_value());
}

TEST(RocksDbRunStoreTest, WhatWasSyncedIsThereAgain) {
  const TempDir dir;
  {
    auto store = MustOpen(dir);
    ASSERT_THAT(store->Replace(MakeState(2)), IsOk());
    ASSERT_THAT(store->Append(Session(1)), IsOk());
    ASSERT_THAT(store->Append(Session(2)), IsOk());
    ASSERT_THAT(store->Sync(), IsOk());
  }

  const auto state = MustOpen(dir)->Load();

  ASSERT_THAT(state, IsOk());
  EXPECT_EQ((*state)->run_id, "r");
  EXPECT_EQ((*state)->sessions.size(), 2u);
}

TEST(RocksDbRunStoreTest, WhatWasNotSyncedIsNot) {
  const TempDir dir;
  {
    auto store = MustOpen(dir);
    ASSERT_THAT(store->Replace(MakeState(2)), IsOk());
    ASSERT_THAT(store->Sync(), IsOk());
    ASSERT_THAT(store->Append(Session(1)), IsOk());
  }

  EXPECT_TRUE((*MustOpen(dir)->Load())->sessions.empty());
}

TEST(RocksDbRunStoreTest, ReplaceForgetsWhatWasBeforeAndChangesGoOn) {
  const TempDir dir;
  for (uint64_t life = 1; life <= 3; ++life) {
    auto store = MustOpen(dir);
    const auto before = store->Load();
    ASSERT_THAT(before, IsOk());
    RunState state = before->value_or(MakeState(2));
    EXPECT_EQ(state.term, life - 1);
    state.term = life;
    ASSERT_THAT(store->Replace(state), IsOk());
    ASSERT_THAT(store->Append(Session(life)), IsOk());
    ASSERT_THAT(store->Sync(), IsOk());
  }

  const auto state = MustOpen(dir)->Load();
  EXPECT_EQ((*state)->term, 3u);
  EXPECT_EQ((*state)->sessions.size(), 3u);
}

TEST(RocksDbRunStoreTest, ASecondProcessIsRefused) {
  const TempDir dir;
  const auto store = MustOpen(dir);

  EXPECT_THAT(RocksDbRunStore::Open(dir.File("run")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process")));
}

TEST(RocksDbRunStoreTest, WhatWasSyncedSurvivesSigkill) {
  const TempDir dir;
  const pid_t child = fork();
  if (child == 0) {
    auto store = MustOpen(dir);
    if (!store->Replace(MakeState(2)).ok()) _exit(1);
    for (SessionId id = 1; id <= 100; ++id) {
      if (!store->Append(Session(id)).ok()) _exit(1);
    }
    if (!store->Sync().ok()) _exit(1);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the child could not write";

  EXPECT_EQ((*MustOpen(dir)->Load())->sessions.size(), 100u);
}

// In a process of its own: the failed store holds its folder until the process ends.
int WriteToAFullDisk(const TempDir& dir) {
  auto store = MustOpen(dir);
  if (!store->Replace(MakeState(2)).ok() || !store->Sync().ok()) return 1;
  // Files may not grow beyond what they have.
  signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {64, 64};
  setrlimit(RLIMIT_FSIZE, &limit);
  if (!store->Append(Session(1)).ok()) return 2;
  if (store->Sync().ok()) return 3;
  if (store->Append(Session(2)).ok()) return 4;
  if (store->Replace(MakeState(2)).ok()) return 5;
  if (store->Sync().ok()) return 6;
  return 0;
}

TEST(RocksDbRunStoreTest, AfterAFailedWriteNothingIsAccepted) {
  const TempDir dir;
  const pid_t child = fork();
  if (child == 0) _exit(WriteToAFullDisk(dir));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  // A library that was built with assertions ends the process by itself: as good.
  const bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  EXPECT_TRUE(aborted || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;

  EXPECT_TRUE((*MustOpen(dir)->Load())->sessions.empty());
}

std::filesystem::path NewestLog(const TempDir& dir) {
  std::filesystem::path newest;
  for (const auto& entry : std::filesystem::directory_iterator(dir.File("run"))) {
    if (entry.path().extension() == ".log" && entry.path() > newest) newest = entry.path();
  }
  return newest;
}

TEST(RocksDbRunStoreTest, ATornLastRecordIsDropped) {
  const TempDir dir;
  {
    auto store = MustOpen(dir);
    ASSERT_THAT(store->Replace(MakeState(2)), IsOk());
    ASSERT_THAT(store->Sync(), IsOk());
    ASSERT_THAT(store->Append(Session(1)), IsOk());
    ASSERT_THAT(store->Sync(), IsOk());
  }
  const std::filesystem::path log = NewestLog(dir);
  std::filesystem::resize_file(log, std::filesystem::file_size(log) - 3);

  const auto state = MustOpen(dir)->Load();

  ASSERT_THAT(state, IsOk());
  EXPECT_TRUE((*state)->sessions.empty());
}

TEST(RocksDbRunStoreTest, DamageBeforeTheEndIsNeverDropped) {
  const TempDir dir;
  {
    auto store = MustOpen(dir);
    ASSERT_THAT(store->Replace(MakeState(2)), IsOk());
    ASSERT_THAT(store->Sync(), IsOk());
    for (SessionId id = 1; id <= 10; ++id) {
      ASSERT_THAT(store->Append(Session(id)), IsOk());
      ASSERT_THAT(store->Sync(), IsOk());
    }
  }
  std::fstream file(NewestLog(dir), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(100);
  file.put('\xff');
  file.close();

  EXPECT_THAT(RocksDbRunStore::Open(dir.File("run")), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace weft
