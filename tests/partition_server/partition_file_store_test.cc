#include "services/partition_server/partition_file_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "graph/hdf5_file.h"
#include "services/common/check.h"
#include "services/common/file_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempDir;

std::unique_ptr<PartitionFileStore> OpenFileStore(const std::string& folder) {
  // A name with every character that the file's name uses itself.
  auto store = PartitionFileStore::Open(folder + "/blobs", {"user", "a_b.t1"}, 0.1);
  WEFT_CHECK(store.ok());
  return *std::move(store);
}

EmbeddingPartition Table(float value) {
  EmbeddingPartition table(3, 2);
  for (float& x : table.embeddings.span()) x = value;
  return table;
}

TEST(PartitionFileStoreTest, AnotherProcessFindsTheBlobs) {
  const TempDir dir;
  ASSERT_THAT(OpenFileStore(dir.path())->Store({{1, 12}, 7}, Table(1)), IsOk());

  EmbeddingPartition out(3, 2);
  ASSERT_THAT(OpenFileStore(dir.path())->Read({{1, 12}, 7}, &out), IsOk());

  EXPECT_EQ(out.embeddings.data()[0], 1);
}

TEST(PartitionFileStoreTest, StatTellsTheShape) {
  const TempDir dir;
  const auto store = OpenFileStore(dir.path());
  ASSERT_THAT(store->Store({{0, 0}, 7}, EmbeddingPartition(5, 3)), IsOk());

  const auto shape = store->Stat({{0, 0}, 7});

  ASSERT_THAT(shape, IsOk());
  EXPECT_EQ(shape->count, 5);
  EXPECT_EQ(shape->dimension, 3);
}

TEST(PartitionFileStoreTest, SweepDeletesWhatIsNotKeptAndNothingNewerThanItsList) {
  const TempDir dir;
  const auto store = OpenFileStore(dir.path());
  for (const Token token : {7, 8, 9}) ASSERT_THAT(store->Store({{0, 0}, token}, Table(1)), IsOk());
  const PartitionVersion keep[] = {{{0, 0}, 8}};

  ASSERT_THAT(store->Sweep(8, keep), IsOk());
  ASSERT_THAT(store->Sweep(8, keep), IsOk());

  EXPECT_THAT(store->Stat({{0, 0}, 7}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store->Stat({{0, 0}, 8}), IsOk());
  EXPECT_THAT(store->Stat({{0, 0}, 9}), IsOk());
}

TEST(PartitionFileStoreTest, ASweptNameMayBeStoredAnew) {
  const TempDir dir;
  const auto store = OpenFileStore(dir.path());
  ASSERT_THAT(store->Store({{0, 0}, 7}, Table(1)), IsOk());
  ASSERT_THAT(store->Sweep(7, {}), IsOk());

  ASSERT_THAT(store->Store({{0, 0}, 7}, Table(2)), IsOk());

  EmbeddingPartition out(3, 2);
  ASSERT_THAT(store->Read({{0, 0}, 7}, &out), IsOk());
  EXPECT_EQ(out.embeddings.data()[0], 2);
}

TEST(PartitionFileStoreTest, WhatWasLeftHalfWrittenIsRemoved) {
  const TempDir dir;
  OpenFileStore(dir.path());
  const std::string left = dir.File("blobs/embeddings_user_0.t7.h5.tmp.123");
  std::ofstream(left) << "half";

  const auto store = OpenFileStore(dir.path());

  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_THAT(store->Stat({{0, 0}, 7}), StatusIs(absl::StatusCode::kNotFound));
}

TEST(PartitionFileStoreTest, ADamagedBlobIsDataLossAndNamed) {
  const TempDir dir;
  const auto store = OpenFileStore(dir.path());
  ASSERT_THAT(store->Store({{0, 3}, 7}, Table(1)), IsOk());
  std::filesystem::resize_file(dir.File("blobs/embeddings_user_3.t7.h5"), 100);

  EmbeddingPartition out(3, 2);
  EXPECT_THAT(store->Read({{0, 3}, 7}, &out),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("partition 3 of entity type 0")));
}

TEST(PartitionFileStoreTest, AFlippedBitIsDataLoss) {
  const TempDir dir;
  const std::string path = dir.File("blobs/embeddings_user_3.t7.h5");
  const auto store = OpenFileStore(dir.path());
  ASSERT_THAT(store->Store({{0, 3}, 7}, Table(1.5f)), IsOk());
  std::string bytes = *ReadFile(path);
  const float value = 1.5f;
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&value), sizeof value));
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  ASSERT_THAT(WriteFileAtomically(path, bytes), IsOk());

  EmbeddingPartition out(3, 2);
  EXPECT_THAT(store->Read({{0, 3}, 7}, &out),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum mismatch")));
}

TEST(PartitionFileStoreTest, AFileThatVanishedIsNotFound) {
  const TempDir dir;
  const auto store = OpenFileStore(dir.path());
  ASSERT_THAT(store->Store({{0, 3}, 7}, Table(1)), IsOk());
  std::filesystem::remove(dir.File("blobs/embeddings_user_3.t7.h5"));

  EXPECT_THAT(store->Stat({{0, 3}, 7}), StatusIs(absl::StatusCode::kNotFound));
}

TEST(PartitionFileStoreTest, ALinkedFileOutlivesTheBlob) {
  const TempDir dir;
  const auto store = OpenFileStore(dir.path());
  ASSERT_THAT(store->Store({{0, 0}, 7}, Table(1)), IsOk());
  const std::string version = dir.File("embeddings_user_0.v1.h5");

  ASSERT_THAT(store->LinkTo({{0, 0}, 7}, version), IsOk());
  EXPECT_EQ(std::filesystem::hard_link_count(version), 2u);
  ASSERT_THAT(store->Sweep(7, {}), IsOk());

  const auto read = ReadEmbeddingsFile(version, 3, 2);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->embeddings.data()[0], 1);
}

TEST(PartitionFileStoreTest, ALinkReplacesWhatWasThere) {
  const TempDir dir;
  const auto store = OpenFileStore(dir.path());
  ASSERT_THAT(store->Store({{0, 0}, 7}, Table(1)), IsOk());
  ASSERT_THAT(store->Store({{0, 0}, 8}, Table(2)), IsOk());
  const std::string version = dir.File("embeddings_user_0.v1.h5");
  ASSERT_THAT(store->LinkTo({{0, 0}, 7}, version), IsOk());

  ASSERT_THAT(store->LinkTo({{0, 0}, 8}, version), IsOk());
  ASSERT_THAT(store->LinkTo({{0, 0}, 8}, version), IsOk());  // as after a crash

  EXPECT_EQ(ReadEmbeddingsFile(version, 3, 2)->embeddings.data()[0], 2);
  // No name of the work is left.
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 1);
}

TEST(PartitionFileStoreTest, AnAdoptedFileIsABlobWithoutBeingCopied) {
  const TempDir dir;
  const auto store = OpenFileStore(dir.path());
  const std::string file = dir.File("embeddings_user_0.v4.h5");
  ASSERT_THAT(WriteEmbeddingsFile(file, Table(5), 0.1, {}), IsOk());

  ASSERT_THAT(store->Adopt(file, {{0, 0}, 9}), IsOk());

  EXPECT_EQ(std::filesystem::hard_link_count(file), 2u);
  EmbeddingPartition out(3, 2);
  ASSERT_THAT(OpenFileStore(dir.path())->Read({{0, 0}, 9}, &out), IsOk());
  EXPECT_EQ(out.embeddings.data()[0], 5);
}

TEST(PartitionFileStoreTest, BlobsCarryTheMetadataOfTheirPass) {
  const TempDir dir;
  const auto store = OpenFileStore(dir.path());
  CheckpointMetadata metadata;
  metadata.epoch_idx = 3;
  store->SetMetadata(metadata);
  ASSERT_THAT(store->Store({{0, 0}, 7}, Table(1)), IsOk());

  const auto file = Hdf5Reader::Open(dir.File("blobs/embeddings_user_0.t7.h5"));
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(file->IntAttribute("/", "iteration/epoch_idx").value_or(-1), 3);
}

}  // namespace
}  // namespace weft
