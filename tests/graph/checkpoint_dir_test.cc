#include "graph/checkpoint/checkpoint_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "graph/checkpoint/version_pin.h"
#include "services/common/file_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;
using testing::TempDir;

class CheckpointDirTest : public ::testing::Test {
 protected:
  void WriteVersion(int64_t version) {
    ASSERT_THAT(WriteModelFile(dir_.ModelPath(version), ParameterSet(), 0.1, {}), IsOk());
    for (int p = 0; p < 2; ++p) {
      ASSERT_THAT(WriteEmbeddingsFile(dir_.EmbeddingsPath("user", p, version),
                                      EmbeddingPartition(3, 2), 0.1, {}),
                  IsOk());
    }
  }
  void WritePointer(const std::string& text) {
    ASSERT_THAT(WriteFileAtomically(temp_.File("checkpoint_version.txt"), text), IsOk());
  }
  bool Exists(const std::string& name) { return fs::exists(temp_.File(name)); }

  const TempDir temp_;
  CheckpointDir dir_{temp_.path(), {{"user", 2}}};
};

TEST_F(CheckpointDirTest, NothingIsVersionZero) {
  std::string warning = "old";
  const auto version = dir_.CommittedVersion(&warning);
  ASSERT_THAT(version, IsOk());
  EXPECT_EQ(*version, 0);
  EXPECT_THAT(warning, IsEmpty());
}

TEST_F(CheckpointDirTest, APinnedVersionIsKeptUntilThePinGoes) {
  WriteVersion(1);
  ASSERT_THAT(dir_.Commit(1), IsOk());
  auto first = dir_.PinCommittedVersion();
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->version, 1);
  WriteVersion(2);
  ASSERT_THAT(dir_.Commit(2), IsOk());
  auto second = dir_.PinCommittedVersion();
  EXPECT_EQ(second->version, 2);

  EXPECT_THAT(dir_.Remove(1), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("version 1 is being read")));
  EXPECT_TRUE(Exists("model.v1.h5"));
  EXPECT_TRUE(Exists("embeddings_user_0.v1.h5"));

  *first = {};
  EXPECT_THAT(dir_.Remove(1), IsOk());
  EXPECT_FALSE(Exists("model.v1.h5"));
}

TEST_F(CheckpointDirTest, WhatIsRemovedOrNotThereIsNotPinned) {
  EXPECT_EQ(dir_.PinCommittedVersion()->version, 0);
  WritePointer("3\n");
  EXPECT_THAT(dir_.PinCommittedVersion(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("version 3 is the committed one")));
  WriteVersion(1);
  EXPECT_TRUE(VersionPin::Share(dir_.ModelPath(1)).has_value());
  EXPECT_FALSE(VersionPin::Share(dir_.ModelPath(2)).has_value());
}

TEST_F(CheckpointDirTest, ReadersSeeTheCommittedVersion) {
  WriteVersion(1);
  ASSERT_THAT(dir_.Commit(1), IsOk());
  WriteVersion(2);  // not yet committed

  std::string warning;
  EXPECT_EQ(*dir_.CommittedVersion(&warning), 1);
  EXPECT_THAT(warning, IsEmpty());
  ASSERT_THAT(dir_.Commit(2), IsOk());
  EXPECT_EQ(*dir_.CommittedVersion(), 2);
  EXPECT_EQ(*ReadFile(temp_.File("checkpoint_version.txt")), "2\n");
}

TEST_F(CheckpointDirTest, AnIncompleteVersionCannotBeCommitted) {
  WriteVersion(1);
  fs::remove(dir_.EmbeddingsPath("user", 1, 1));

  EXPECT_THAT(dir_.Commit(1), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("embeddings_user_1.v1.h5 is missing or empty")));
}

TEST_F(CheckpointDirTest, AnEmptyOrGarbledPointerFallsBackToTheNewestWholeVersion) {
  WriteVersion(1);
  WriteVersion(2);
  WriteVersion(3);
  fs::remove(dir_.ModelPath(3));
  for (const char* text : {"", "\n", "x", "2x", "-1", "2.0", "99999999999999999999", "1 2"}) {
    SCOPED_TRACE(text);
    WritePointer(text);

    std::string warning;
    const auto version = dir_.CommittedVersion(&warning);
    ASSERT_THAT(version, IsOk());
    EXPECT_EQ(*version, 2);
    EXPECT_THAT(warning, HasSubstr("taking the newest whole version, 2"));
  }
}

TEST_F(CheckpointDirTest, ATruncatedVersionIsNotWhole) {
  WriteVersion(1);
  WriteVersion(2);
  fs::resize_file(dir_.EmbeddingsPath("user", 0, 2), 1000);
  WritePointer("");

  EXPECT_EQ(*dir_.CommittedVersion(), 1);
}

TEST_F(CheckpointDirTest, AGarbledPointerWithoutAWholeVersionIsNeverZero) {
  WriteVersion(1);
  fs::remove(dir_.ModelPath(1));
  WritePointer("");

  EXPECT_THAT(dir_.CommittedVersion(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("none of the versions")));
}

TEST_F(CheckpointDirTest, AnEmptyPointerInAnEmptyFolderIsZero) {
  WritePointer("");
  EXPECT_EQ(*dir_.CommittedVersion(), 0);
}

TEST_F(CheckpointDirTest, ARunThatDiedBeforeItsFirstCommitIsAtZero) {
  WriteVersion(1);
  fs::remove(dir_.ModelPath(1));

  EXPECT_EQ(*dir_.CommittedVersion(), 0);
}

TEST_F(CheckpointDirTest, ALostPointerDoesNotHideAWholeVersion) {
  WriteVersion(1);

  std::string warning;
  EXPECT_EQ(*dir_.CommittedVersion(&warning), 1);
  EXPECT_THAT(warning, HasSubstr("is missing"));
}

TEST_F(CheckpointDirTest, AMissingPartitionOfTheCommittedVersionIsRefused) {
  WriteVersion(1);
  ASSERT_THAT(dir_.Commit(1), IsOk());
  fs::remove(dir_.EmbeddingsPath("user", 0, 1));

  EXPECT_THAT(dir_.CommittedVersion(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("embeddings_user_0.v1.h5")));
}

TEST_F(CheckpointDirTest, RemoveKeepsTheCommittedVersion) {
  WriteVersion(1);
  WriteVersion(2);
  ASSERT_THAT(dir_.Commit(2), IsOk());

  ASSERT_THAT(dir_.Remove(1), IsOk());
  ASSERT_THAT(dir_.Remove(2), IsOk());
  ASSERT_THAT(dir_.Remove(7), IsOk());
  EXPECT_FALSE(Exists("model.v1.h5"));
  EXPECT_FALSE(Exists("embeddings_user_1.v1.h5"));
  EXPECT_TRUE(Exists("model.v2.h5"));
  EXPECT_EQ(*dir_.CommittedVersion(), 2);
}

TEST_F(CheckpointDirTest, APreservedVersionStaysAndCanBeMovedWithItsFolder) {
  WriteVersion(1);
  ASSERT_THAT(dir_.Commit(1), IsOk());
  ASSERT_THAT(dir_.Preserve(1, 10, "{}"), IsOk());
  ASSERT_THAT(dir_.Preserve(1, 10, "{}"), IsOk());  // again, as after a crash
  WriteVersion(2);
  ASSERT_THAT(dir_.Commit(2), IsOk());
  ASSERT_THAT(dir_.Remove(1), IsOk());

  const std::string moved = temp_.path() + "_moved";
  fs::rename(temp_.path(), moved);
  const CheckpointDir preserved(moved + "/epoch_10", {{"user", 2}});
  EXPECT_EQ(*preserved.CommittedVersion(), 1);
  EXPECT_THAT(ReadEmbeddingsFile(preserved.EmbeddingsPath("user", 0, 1), 3, 2), IsOk());
  EXPECT_EQ(*ReadFile(moved + "/epoch_10/config.json"), "{}");
  fs::rename(moved, temp_.path());
}

TEST_F(CheckpointDirTest, PreservingAnotherVersionReplacesTheLinks) {
  WriteVersion(1);
  WriteVersion(2);
  ASSERT_THAT(dir_.Preserve(1, 10, "{}"), IsOk());
  ASSERT_THAT(dir_.Preserve(2, 10, "{}"), IsOk());

  EXPECT_EQ(*CheckpointDir(temp_.File("epoch_10"), {{"user", 2}}).CommittedVersion(), 2);
  EXPECT_FALSE(fs::is_symlink(temp_.File("epoch_10/model.v1.h5")));
}

TEST_F(CheckpointDirTest, AVersionThatIsNotWholeIsNotPreserved) {
  WriteVersion(1);
  fs::remove(dir_.ModelPath(1));

  EXPECT_THAT(dir_.Preserve(1, 1, "{}"), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace weft
