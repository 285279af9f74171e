#include "services/partition_server/rocksdb_blob_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "services/common/check.h"
#include "services/common/file_util.h"
#include "tests/partition_server/blob_store_contract.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<BlobStorage> OpenStorage(const std::string& folder) {
  auto storage = RocksDbBlobStorage::Open(folder + "/blobs");
  WEFT_CHECK(storage.ok());
  return *std::move(storage);
}

INSTANTIATE_TEST_SUITE_P(RocksDb, BlobStoreContractTest, ::testing::Values(OpenStorage));

std::unique_ptr<BlobStore> OpenStore(const TempDir& dir) {
  auto store = BlobStore::Open(OpenStorage(dir.path()), {.reserve_bytes = 0});
  WEFT_CHECK(store.ok());
  return *std::move(store);
}

int64_t FilesIn(const std::string& folder, const std::string& extension) {
  int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files += entry.path().extension() == extension ? 1 : 0;
  }
  return files;
}

// The only table file.
std::string TableFile(const TempDir& dir) {
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(dir.File("blobs/db"))) {
    if (entry.path().extension() == ".sst") path = entry.path().string();
  }
  return path;
}

const ShardName kName = {{{0, 0}, 7}, 0};

TEST(RocksDbBlobStorageTest, BlobsAreThereAfterReopening) {
  const TempDir dir;
  const std::string content = Content(1, kSegmentBytes + 100);
  ASSERT_THAT(Put(OpenStore(dir).get(), kName, content), IsOk());
  ASSERT_THAT(Put(OpenStore(dir).get(), {{{-1, 3}, 9}, 2}, Content(2, 0)), IsOk());

  const auto store = OpenStore(dir);

  EXPECT_TRUE(*Get(store.get(), kName) == content);
  ASSERT_EQ(store->List().size(), 2u);
  EXPECT_EQ(store->List()[0].name, (ShardName{{{-1, 3}, 9}, 2}));
  EXPECT_THAT(Put(store.get(), kName, content), IsOk());
  EXPECT_THAT(Put(store.get(), kName, Content(2, 100)), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST(RocksDbBlobStorageTest, WhatIsSweptStaysAwayAndFreesItsFile) {
  const TempDir dir;
  {
    const auto store = OpenStore(dir);
    ASSERT_THAT(Put(store.get(), kName, Content(1, 1000)), IsOk());
    ASSERT_THAT(Put(store.get(), {{{0, 1}, 8}, 0}, Content(1, 1000)), IsOk());
    ASSERT_THAT(store->Sweep(7, {}), IsOk());
    EXPECT_EQ(FilesIn(dir.File("blobs/db"), ".sst"), 1);
  }

  const auto store = OpenStore(dir);

  EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store->Stat({{{0, 1}, 8}, 0}), IsOk());
}

TEST(RocksDbBlobStorageTest, UploadsLeaveNoFiles) {
  const TempDir dir;
  const auto store = OpenStore(dir);
  {
    const auto upload = store->BeginUpload(kName, InfoOf(Content(1, 100)));
    ASSERT_THAT(AppendAll(upload->get(), Content(1, 100)), IsOk());
    EXPECT_EQ(FilesIn(dir.File("blobs/staging"), ".sst"), 1);
  }
  EXPECT_EQ(FilesIn(dir.File("blobs/staging"), ".sst"), 0);

  ASSERT_THAT(Put(store.get(), kName, Content(1, 100)), IsOk());
  EXPECT_EQ(FilesIn(dir.File("blobs/staging"), ".sst"), 0);
}

TEST(RocksDbBlobStorageTest, AnotherProcessMayNotOpenIt) {
  const TempDir dir;
  const auto store = OpenStore(dir);

  EXPECT_THAT(RocksDbBlobStorage::Open(dir.File("blobs")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process")));
}

// A child puts blob after blob, and tells of each that was acknowledged, until it is killed.
TEST(RocksDbBlobStorageTest, WhatWasAcknowledgedSurvivesBeingKilledAndTheRestIsWholeOrAbsent) {
  const TempDir dir;
  const auto content = [](Token token) {
    return Content(static_cast<int>(token), kSegmentBytes / 2 + 1000 * static_cast<int64_t>(token));
  };
  Token acknowledged = 0;
  for (int kill = 1; kill <= 4; ++kill) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto store = OpenStore(dir);
      const auto never = store->BeginUpload({{{9, 9}, 1}, 0}, InfoOf(content(1)));
      WEFT_CHECK(never.ok() && AppendAll(never->get(), content(1)).ok());
      for (Token token = acknowledged + 1;; ++token) {
        WEFT_CHECK(Put(store.get(), {{{0, 0}, token}, 0}, content(token)).ok());
        WEFT_CHECK(write(pipe_ends[1], &token, sizeof token) == sizeof token);
      }
    }
    close(pipe_ends[1]);
    const Token until = acknowledged + static_cast<Token>(kill);
    while (acknowledged < until) {
      ASSERT_EQ(read(pipe_ends[0], &acknowledged, sizeof acknowledged),
                static_cast<ssize_t>(sizeof acknowledged));
    }
    ::kill(child, SIGKILL);  // somewhere within a put
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    // What it told before it died.
    while (read(pipe_ends[0], &acknowledged, sizeof acknowledged) > 0) {
    }
    close(pipe_ends[0]);

    const auto store = OpenStore(dir);
    EXPECT_EQ(FilesIn(dir.File("blobs/staging"), ".sst"), 0);
    const std::vector<BlobEntry> list = store->List();
    ASSERT_GE(list.size(), acknowledged);
    ASSERT_LE(list.size(), acknowledged + 1);
    for (const BlobEntry& entry : list) {
      EXPECT_TRUE(*Get(store.get(), entry.name) == content(entry.name.version.token));
    }
    acknowledged = list.back().name.version.token;
  }
}

TEST(RocksDbBlobStorageTest, AFlippedBitIsDataLossAndQuarantined) {
  const TempDir dir;
  const std::string content = Content(1, 2 * kSegmentBytes);
  ASSERT_THAT(Put(OpenStore(dir).get(), kName, content), IsOk());
  {
    std::fstream file(TableFile(dir), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(kSegmentBytes + kSegmentBytes / 2);
    file.put(static_cast<char>(content[static_cast<size_t>(kSegmentBytes)] ^ 0x55));
  }
  const auto store = OpenStore(dir);
  EXPECT_THAT(store->Stat(kName), IsOk());

  EXPECT_THAT(Get(store.get(), kName), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kDataLoss));

  // It can be put anew, and is then whole, also after a restart.
  ASSERT_THAT(Put(store.get(), kName, content), IsOk());
  EXPECT_TRUE(*Get(store.get(), kName) == content);
}

TEST(RocksDbBlobStorageTest, ATruncatedOrMissingFileIsOneDamagedBlobAndTheOthersAreRead) {
  for (const bool missing : {false, true}) {
    const TempDir dir;
    ASSERT_THAT(Put(OpenStore(dir).get(), kName, Content(1, kSegmentBytes)), IsOk());
    const std::string damaged = TableFile(dir);
    ASSERT_THAT(Put(OpenStore(dir).get(), {{{0, 1}, 8}, 0}, Content(2, 100)), IsOk());
    if (missing) {
      std::filesystem::remove(damaged);
    } else {
      std::filesystem::resize_file(damaged, 1000);
    }

    auto store = OpenStore(dir);
    EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_EQ(store->List().size(), 2u);
    EXPECT_TRUE(*Get(store.get(), {{{0, 1}, 8}, 0}) == Content(2, 100));

    ASSERT_THAT(store->Sweep(7, {}), IsOk());
    store.reset();
    EXPECT_EQ(OpenStore(dir)->List().size(), 1u);
  }
}

// RocksDB looks into the neighbours of what it takes in.
TEST(RocksDbBlobStorageTest, BesideADamagedFileOthersAreStored) {
  const TempDir dir;
  ASSERT_THAT(Put(OpenStore(dir).get(), kName, Content(1, kSegmentBytes)), IsOk());
  std::filesystem::resize_file(TableFile(dir), 1000);
  const auto store = OpenStore(dir);

  for (const Token token : {Token{6}, Token{8}}) {
    const ShardName name = {{{0, 0}, token}, 0};
    ASSERT_THAT(Put(store.get(), name, Content(2, 100)), IsOk());
    EXPECT_TRUE(*Get(store.get(), name) == Content(2, 100));
  }
  EXPECT_THAT(Get(store.get(), kName), StatusIs(absl::StatusCode::kDataLoss));
  // Damage that was noticed when the server began, and damage that comes later.
  std::filesystem::resize_file(TableFile(dir), 1000);
  ASSERT_THAT(Put(store.get(), kName, Content(3, 100)), IsOk());
  EXPECT_TRUE(*Get(store.get(), kName) == Content(3, 100));
}

// In a child, for the limit is for ever: writes beyond a file's first 2 MB fail, as on a broken
// disk.
TEST(RocksDbBlobStorageTest, AWriteThatFailsEndsWritingAndNotReading) {
  const TempDir dir;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto store = OpenStore(dir);
    WEFT_CHECK(Put(store.get(), kName, Content(1, 1000)).ok());
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {2 << 20, 2 << 20};
    WEFT_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    const absl::Status failed = Put(store.get(), {{{0, 1}, 8}, 0}, Content(2, 2 * kSegmentBytes));
    WEFT_CHECK(absl::IsInternal(failed));
    WEFT_CHECK(Put(store.get(), {{{0, 2}, 9}, 0}, Content(3, 10)) == store->write_status());
    WEFT_CHECK(*Get(store.get(), kName) == Content(1, 1000));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;

  EXPECT_EQ(OpenStore(dir)->List().size(), 1u);
}

}  // namespace
}  // namespace weft::testing
