// What a BlobStore promises over every storage, as tests. A storage takes part by its own
// instantiation:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, BlobStoreContractTest, ::testing::Values(MakeMemoryStorage));
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/partition_server/blob_store.h"
#include "tests/partition_server/blob_testing.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft::testing {

// A storage over `folder` (which durable ones use).
using BlobStorageFactory = std::function<std::unique_ptr<BlobStorage>(const std::string& folder)>;

class BlobStoreContractTest : public ::testing::TestWithParam<BlobStorageFactory> {
 protected:
  BlobStoreContractTest() : store(*BlobStore::Open(GetParam()(dir.path()), {.reserve_bytes = 0})) {}

  void ExpectHolds(const ShardName& name, const std::string& content) {
    const auto read = Get(store.get(), name);
    ASSERT_THAT(read, IsOk());
    EXPECT_TRUE(*read == content);  // no EQ: nobody wants to read megabytes
  }

  std::unique_ptr<BlobUpload> Begin(const ShardName& name, const std::string& content) {
    return *store->BeginUpload(name, InfoOf(content));
  }

  static constexpr ShardName kName = {{{0, 0}, 7}, 0};

  TempDir dir;
  std::unique_ptr<BlobStore> store;
};

TEST_P(BlobStoreContractTest, WhatWasPutIsThere) {
  const std::string content = Content(1, 2 * kSegmentBytes + 17);

  ASSERT_THAT(Put(store.get(), kName, content), IsOk());

  ExpectHolds(kName, content);
  EXPECT_EQ(*store->Stat(kName), InfoOf(content));
  EXPECT_THAT(store->Verify(kName), IsOk());
}

TEST_P(BlobStoreContractTest, LengthsAroundSegmentsAreAllBlobs) {
  int shard = 0;
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, kSegmentBytes - 1, kSegmentBytes,
                              kSegmentBytes + 1, 2 * kSegmentBytes}) {
    const ShardName name = {{{0, 0}, 7}, static_cast<uint32_t>(shard++)};
    const std::string content = Content(shard, bytes);
    ASSERT_THAT(Put(store.get(), name, content), IsOk());
    ExpectHolds(name, content);
  }
}

TEST_P(BlobStoreContractTest, EveryPartOfANameMakesAnotherBlob) {
  const ShardName names[] = {{{{0, 0}, 7}, 0},  {{{1, 0}, 7}, 0},         {{{0, 1}, 7}, 0},
                             {{{0, 0}, 8}, 0},  {{{0, 0}, 7}, 1},         {{{-1, 0}, 7}, 0},
                             {{{-2, 0}, 7}, 0}, {{{0, 0}, 7ull << 40}, 0}};
  int seed = 0;
  for (const ShardName& name : names) {
    ASSERT_THAT(Put(store.get(), name, Content(++seed, 100)), IsOk());
  }

  seed = 0;
  for (const ShardName& name : names) ExpectHolds(name, Content(++seed, 100));
  EXPECT_EQ(store->List().size(), std::size(names));
}

TEST_P(BlobStoreContractTest, WhatIsNotThereIsNotFound) {
  EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kNotFound,
                                           ::testing::HasSubstr("partition 0 of entity type 0")));
  EXPECT_THAT(store->OpenReader(kName), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store->Verify(kName), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(BlobStoreContractTest, NothingIsVisibleBeforePublish) {
  const std::string content = Content(1, kSegmentBytes + 5);
  const auto upload = Begin(kName, content);
  ASSERT_THAT(AppendAll(upload.get(), content), IsOk());

  EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_TRUE(store->List().empty());

  ASSERT_THAT(upload->Publish(), IsOk());
  ExpectHolds(kName, content);
}

TEST_P(BlobStoreContractTest, AnUploadThatIsDroppedLeavesNothing) {
  const std::string content = Content(1, kSegmentBytes + 5);
  auto upload = Begin(kName, content);
  ASSERT_THAT(AppendSegment(upload.get(), content, 0), IsOk());
  EXPECT_EQ(store->stats().uploads, 1);

  upload.reset();

  EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(store->stats().uploads, 0);
  EXPECT_EQ(store->stats().upload_bytes, 0);
}

TEST_P(BlobStoreContractTest, UploadsOfOneNameDoNotMix) {
  const std::string content = Content(1, 2 * kSegmentBytes);
  const auto stalled = Begin(kName, content);
  const auto retry = Begin(kName, content);
  ASSERT_THAT(AppendSegment(stalled.get(), content, 0), IsOk());
  ASSERT_THAT(AppendSegment(retry.get(), content, 0), IsOk());
  ASSERT_THAT(AppendSegment(retry.get(), content, 1), IsOk());
  ASSERT_THAT(retry->Publish(), IsOk());

  ASSERT_THAT(AppendSegment(stalled.get(), content, 1), IsOk());
  EXPECT_THAT(stalled->Publish(), IsOk());

  ExpectHolds(kName, content);
}

TEST_P(BlobStoreContractTest, TheSecondUploadWithAnotherContentIsRefused) {
  const std::string first = Content(1, 100);
  const std::string second = Content(2, 100);
  const auto one = Begin(kName, first);
  const auto two = Begin(kName, second);
  ASSERT_THAT(AppendAll(one.get(), first), IsOk());
  ASSERT_THAT(AppendAll(two.get(), second), IsOk());
  ASSERT_THAT(one->Publish(), IsOk());

  EXPECT_THAT(two->Publish(), StatusIs(absl::StatusCode::kAlreadyExists));

  ExpectHolds(kName, first);
}

TEST_P(BlobStoreContractTest, TheSameContentMayBePutAgainAnotherMayNot) {
  ASSERT_THAT(Put(store.get(), kName, Content(1, 100)), IsOk());

  EXPECT_THAT(Put(store.get(), kName, Content(1, 100)), IsOk());
  EXPECT_THAT(Put(store.get(), kName, Content(2, 100)), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Put(store.get(), kName, Content(1, 99)), StatusIs(absl::StatusCode::kAlreadyExists));

  ExpectHolds(kName, Content(1, 100));
}

TEST_P(BlobStoreContractTest, ASegmentOutOfOrderIsRefused) {
  const std::string content = Content(1, 3 * kSegmentBytes);
  for (const int64_t index : {1, 2, -1, 3}) {
    const auto upload = Begin(kName, content);
    const absl::string_view segment = SegmentOf(content, 1);
    EXPECT_THAT(upload->Append(index, SegmentChecksum({segment}), {segment}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  const auto repeats = Begin(kName, content);
  ASSERT_THAT(AppendSegment(repeats.get(), content, 0), IsOk());
  EXPECT_THAT(AppendSegment(repeats.get(), content, 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
  // It has ended: what would have been right is refused as well.
  EXPECT_THAT(AppendSegment(repeats.get(), content, 1),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(repeats->Publish(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(BlobStoreContractTest, ASegmentOfAWrongSizeIsRefused) {
  const std::string content = Content(1, kSegmentBytes + 100);
  for (const size_t bytes : {size_t{0}, size_t{99}, size_t{101}}) {
    const auto upload = Begin(kName, content);
    ASSERT_THAT(AppendSegment(upload.get(), content, 0), IsOk());
    const std::string segment(bytes, 'x');
    EXPECT_THAT(upload->Append(1, SegmentChecksum({segment}), {segment}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST_P(BlobStoreContractTest, ASegmentInPiecesIsOneSegment) {
  const std::string content = Content(1, 1000);
  const auto upload = Begin(kName, content);
  const absl::string_view all = content;

  ASSERT_THAT(upload->Append(0, SegmentChecksum({all}),
                             {all.substr(0, 1), all.substr(1, 500), all.substr(501)}),
              IsOk());
  ASSERT_THAT(upload->Publish(), IsOk());

  ExpectHolds(kName, content);
}

TEST_P(BlobStoreContractTest, AWrongChecksumIsDataLossAndNothingIsStored) {
  const std::string content = Content(1, 100);
  const auto segment = Begin(kName, content);
  EXPECT_THAT(segment->Append(0, SegmentChecksum({content}) ^ 1, {content}),
              StatusIs(absl::StatusCode::kDataLoss, ::testing::HasSubstr("segment 0")));

  BlobInfo info = InfoOf(content);
  info.checksum ^= 1;
  const auto whole = *store->BeginUpload(kName, info);
  ASSERT_THAT(AppendAll(whole.get(), content), IsOk());
  EXPECT_THAT(whole->Publish(), StatusIs(absl::StatusCode::kDataLoss));

  EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(BlobStoreContractTest, AnUploadThatIsCutShortIsNotPublished) {
  const std::string content = Content(1, 2 * kSegmentBytes);
  const auto upload = Begin(kName, content);
  ASSERT_THAT(AppendSegment(upload.get(), content, 0), IsOk());

  EXPECT_THAT(upload->Publish(), StatusIs(absl::StatusCode::kInvalidArgument));

  EXPECT_THAT(store->Stat(kName), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(BlobStoreContractTest, ALengthThatCannotBeIsRefusedAndOneThatDoesNotFitToo) {
  EXPECT_THAT(store->BeginUpload(kName, {-1, 0}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(store->BeginUpload(kName, {INT64_MAX, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(store->BeginUpload(kName, {store->FreeBytes() + (int64_t{1} << 38), 0}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(store->stats().uploads, 0);
  EXPECT_THAT(Put(store.get(), kName, Content(1, 10)), IsOk());
}

TEST_P(BlobStoreContractTest, SweepDeletesWhatIsNotKeptAndNothingNewerThanItsList) {
  for (const Token token : {7, 8, 9}) {
    for (const uint32_t shard : {0u, 1u}) {
      ASSERT_THAT(Put(store.get(), {{{0, 0}, token}, shard}, Content(1, 100)), IsOk());
    }
  }
  const PartitionVersion keep[] = {{{0, 0}, 8}};

  const auto swept = store->Sweep(8, keep);

  ASSERT_THAT(swept, IsOk());
  EXPECT_EQ(swept->blobs, 2);
  EXPECT_EQ(swept->bytes, 200);
  EXPECT_THAT(store->Stat({{{0, 0}, 7}, 0}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store->Stat({{{0, 0}, 7}, 1}), StatusIs(absl::StatusCode::kNotFound));
  for (const Token token : {8, 9}) {
    for (const uint32_t shard : {0u, 1u}) ExpectHolds({{{0, 0}, token}, shard}, Content(1, 100));
  }
  EXPECT_EQ(store->Sweep(8, keep)->blobs, 0);
}

TEST_P(BlobStoreContractTest, SweepKeepsAllThatATokenNames) {
  const ShardName edges = {{{kEdgesType, 3}, 7}, 1};
  ASSERT_THAT(Put(store.get(), edges, Content(1, 100)), IsOk());
  ASSERT_THAT(Put(store.get(), {{{kEdgesType, 3}, 6}, 1}, Content(2, 100)), IsOk());
  const Token keep_tokens[] = {7};

  const auto swept = store->Sweep(8, {}, keep_tokens);

  ASSERT_THAT(swept, IsOk());
  EXPECT_EQ(swept->blobs, 1);
  ExpectHolds(edges, Content(1, 100));
}

TEST_P(BlobStoreContractTest, ASweptNameMayBePutAnew) {
  ASSERT_THAT(Put(store.get(), kName, Content(1, 100)), IsOk());
  ASSERT_THAT(store->Sweep(7, {}), IsOk());

  ASSERT_THAT(Put(store.get(), kName, Content(2, kSegmentBytes + 100)), IsOk());

  ExpectHolds(kName, Content(2, kSegmentBytes + 100));
  ASSERT_THAT(store->Sweep(7, {}), IsOk());
  EXPECT_TRUE(store->List().empty());
}

TEST_P(BlobStoreContractTest, SweepEndsUploadsOfGarbageOnly) {
  const std::string content = Content(1, 2 * kSegmentBytes);
  const auto garbage = Begin({{{0, 0}, 7}, 0}, content);
  const auto sealed = Begin({{{0, 0}, 6}, 0}, content);
  const auto kept = Begin({{{0, 0}, 8}, 0}, content);
  const auto newer = Begin({{{0, 0}, 9}, 0}, content);
  ASSERT_THAT(AppendSegment(garbage.get(), content, 0), IsOk());
  ASSERT_THAT(AppendAll(sealed.get(), content), IsOk());
  const PartitionVersion keep[] = {{{0, 0}, 8}};

  EXPECT_EQ(store->Sweep(8, keep)->uploads, 2);

  EXPECT_THAT(AppendSegment(garbage.get(), content, 1), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(sealed->Publish(), StatusIs(absl::StatusCode::kAborted));
  ASSERT_THAT(AppendAll(kept.get(), content), IsOk());
  EXPECT_THAT(kept->Publish(), IsOk());
  ASSERT_THAT(AppendAll(newer.get(), content), IsOk());
  EXPECT_THAT(newer->Publish(), IsOk());
  EXPECT_EQ(store->List().size(), 2u);
}

TEST_P(BlobStoreContractTest, WhatAReaderHoldsOutlivesTheSweep) {
  const std::string content = Content(1, 2 * kSegmentBytes);
  ASSERT_THAT(Put(store.get(), kName, content), IsOk());
  const auto reader = store->OpenReader(kName);
  ASSERT_THAT(reader, IsOk());
  const auto held = reader->Read(0);
  ASSERT_THAT(held, IsOk());

  ASSERT_THAT(store->Sweep(7, {}), IsOk());

  EXPECT_TRUE(held->bytes == SegmentOf(content, 0));
  // What it had not read is there still, or gone; never damaged.
  const auto rest = reader->Read(1);
  EXPECT_TRUE(rest.ok() ? rest->bytes == SegmentOf(content, 1) : absl::IsNotFound(rest.status()));
}

TEST_P(BlobStoreContractTest, BytesAreReadAcrossSegments) {
  const std::string content = Content(1, 2 * kSegmentBytes + 10);
  ASSERT_THAT(Put(store.get(), kName, content), IsOk());
  auto reader = store->OpenReader(kName);
  ASSERT_THAT(reader, IsOk());

  std::string out(static_cast<size_t>(kSegmentBytes) + 15, '\0');
  ASSERT_THAT(reader->ReadBytes(kSegmentBytes - 5, absl::MakeSpan(out)), IsOk());

  EXPECT_TRUE(out == content.substr(static_cast<size_t>(kSegmentBytes) - 5));
}

TEST_P(BlobStoreContractTest, ThreadsMayPutGetAndSweepAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      const PartitionVersion keep[] = {{{0, 0}, 1}, {{0, 1}, 1}, {{0, 2}, 1}, {{0, 3}, 1}};
      const ShardName kept = {{{0, t}, 1}, 0};
      EXPECT_THAT(Put(store.get(), kept, Content(t, 1000)), IsOk());
      for (int i = 0; i < 5; ++i) {
        // The same name and content from all of them, which any of them may sweep.
        const absl::Status put = Put(store.get(), {{{1, 0}, 2}, 0}, Content(9, 1000));
        EXPECT_TRUE(put.ok() || absl::IsAborted(put)) << put;
        EXPECT_THAT(store->Sweep(2, keep), IsOk());
        ExpectHolds(kept, Content(t, 1000));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->List().size(), 4u);
}

}  // namespace weft::testing
