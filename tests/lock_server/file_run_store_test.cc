#include "services/lock_server/file_run_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "services/common/file_util.h"
#include "services/lock_server/memory_run_store.h"
#include "services/lock_server/run_codec.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempDir;

// A state with something in every field.
RunState FullState() {
  RunState state;
  state.run_id = "0123456789abcdef";
  state.seed = 0xFFFFFFFFFFFFFFFF;
  state.term = 3;
  state.shape.entity_types = {{"user", 100, {10, 11}, 2}, {"item", 50, {7}, 1}};
  state.shape.relations = {{"likes", "user", "item", "translation"}};
  state.shape.num_dynamic_relations = 5;
  state.shape.dynamic_relations = true;
  state.shape.global_embeddings = true;
  state.shape.entities_digest = 99;
  state.edge_paths = {{"a", 1}, {"b", 2}};
  state.position = {8, 2, 1, 3, 4};
  state.versions = VersionTable({2, 1});
  state.versions.SetCurrent({0, 1}, 77);
  state.versions.SetCommitted({0, 1}, 70);
  state.early_stopping = {6, 1.5, 10, 0.25, 4, 2, 1};
  state.obsolete_versions = {5, 6};
  state.failure = TrainingFailure{{1, 0}, "NaN"};
  return state;
}

BucketStats FullStats() {
  BucketStats stats;
  stats.bucket = {1, 0};
  stats.trained_edges = 90;
  stats.held_out_edges = 10;
  stats.train_seconds = 0.1;
  stats.train = {90, {{"loss", 1.0 / 3}, {"reg", 0}}};
  stats.eval_before = Stats{10, {{"mrr", 0.5}}};
  stats.eval_after = Stats{10, {{"mrr", 0.75}}};
  return stats;
}

void ExpectEqual(const Stats& a, const Stats& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.metrics, b.metrics);
}

void ExpectEqual(const RunState& a, const RunState& b) {
  EXPECT_EQ(a.run_id, b.run_id);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.term, b.term);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.edge_paths, b.edge_paths);
  EXPECT_EQ(a.position, b.position);
  EXPECT_EQ(a.early_stopping, b.early_stopping);
  EXPECT_EQ(a.obsolete_versions, b.obsolete_versions);
  ASSERT_EQ(a.versions.keys(), b.versions.keys());
  for (const PartitionKey& key : a.versions.keys()) {
    EXPECT_EQ(a.versions.current(key), b.versions.current(key));
    EXPECT_EQ(a.versions.committed(key), b.versions.committed(key));
  }
  ASSERT_EQ(a.failure.has_value(), b.failure.has_value());
  if (a.failure.has_value()) {
    EXPECT_EQ(a.failure->reason, b.failure->reason);
    EXPECT_EQ(a.failure->bucket, b.failure->bucket);
  }
  ASSERT_EQ(a.done.size(), b.done.size());
  for (size_t i = 0; i < a.done.size(); ++i) {
    const BucketStats& x = a.done[i].stats;
    const BucketStats& y = b.done[i].stats;
    EXPECT_EQ(a.done[i].token, b.done[i].token);
    EXPECT_EQ(x.bucket, y.bucket);
    EXPECT_EQ(x.trained_edges, y.trained_edges);
    EXPECT_EQ(x.held_out_edges, y.held_out_edges);
    EXPECT_EQ(x.train_seconds, y.train_seconds);
    ExpectEqual(x.train, y.train);
    ASSERT_EQ(x.eval_before.has_value(), y.eval_before.has_value());
    if (x.eval_before.has_value()) ExpectEqual(*x.eval_before, *y.eval_before);
    ASSERT_EQ(x.eval_after.has_value(), y.eval_after.has_value());
    if (x.eval_after.has_value()) ExpectEqual(*x.eval_after, *y.eval_after);
  }
}

const GrantReleased kRelease = {78, {{0, 0}, {0, 1}}, {FullStats()}};

// A store that has been used: a state and two changes.
std::string UsedStore(const TempDir& dir) {
  const std::string path = dir.File("run.log");
  auto store = *FileRunStore::Open(path);
  RunState state = FullState();
  state.failure.reset();
  EXPECT_THAT(store->Replace(state), IsOk());
  EXPECT_THAT(store->Append(kRelease), IsOk());
  GrantReleased second = kRelease;
  second.token = 79;
  EXPECT_THAT(store->Append(second), IsOk());
  return path;
}

absl::StatusOr<std::optional<RunState>> LoadFrom(const std::string& path) {
  return (*FileRunStore::Open(path))->Load();
}

TEST(RunCodecTest, AStateSurvivesTheRoundTrip) {
  RunState state = FullState();
  state.done.push_back({76, FullStats()});

  const auto decoded = DecodeRecord(EncodeRecord(state));

  ASSERT_THAT(decoded, IsOk());
  ExpectEqual(std::get<RunState>(*decoded), state);
}

TEST(RunCodecTest, BytesThatAreNoRecordAreRefused) {
  EXPECT_THAT(DecodeRecord("\xff\xff\xff"), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(DecodeRecord(""), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(FileRunStoreTest, AFreshStoreHasNoState) {
  const TempDir dir;

  const auto state = LoadFrom(dir.File("run.log"));

  ASSERT_THAT(state, IsOk());
  EXPECT_FALSE(state->has_value());
}

TEST(FileRunStoreTest, AnotherProcessSeesTheStateWithAllItsChanges) {
  const TempDir dir;
  const std::string path = UsedStore(dir);

  const auto state = LoadFrom(path);

  ASSERT_THAT(state, IsOk());
  RunState expected = FullState();
  expected.failure.reset();
  ApplyChange(kRelease, &expected);
  GrantReleased second = kRelease;
  second.token = 79;
  ApplyChange(second, &expected);
  ExpectEqual(**state, expected);
}

TEST(FileRunStoreTest, ReplaceForgetsWhatWasBefore) {
  const TempDir dir;
  const std::string path = UsedStore(dir);
  auto store = *FileRunStore::Open(path);

  ASSERT_THAT(store->Replace(FullState()), IsOk());

  const auto state = LoadFrom(path);
  ASSERT_THAT(state, IsOk());
  ExpectEqual(**state, FullState());
}

TEST(FileRunStoreTest, ChangesAfterAReplaceAreKept) {
  const TempDir dir;
  const std::string path = dir.File("run.log");
  {
    auto store = *FileRunStore::Open(path);
    ASSERT_THAT(store->Replace(FullState()), IsOk());
    ASSERT_THAT(store->Append(RunFailed{{{1, 1}, "disk"}}), IsOk());
  }

  const auto state = LoadFrom(path);

  ASSERT_THAT(state, IsOk());
  EXPECT_EQ((*state)->failure->reason, "disk");
}

TEST(FileRunStoreTest, AnIncompleteLastRecordIsDroppedWhereverItWasCut) {
  const TempDir dir;
  const std::string path = UsedStore(dir);
  const std::string whole = *ReadFile(path);
  const size_t last = whole.rfind("WRL1");
  for (size_t size = last; size < whole.size(); size += 11) {
    SCOPED_TRACE(size);
    ASSERT_THAT(WriteFileAtomically(path, whole.substr(0, size)), IsOk());
    auto store = *FileRunStore::Open(path);

    const auto state = store->Load();

    ASSERT_THAT(state, IsOk());
    ASSERT_EQ((*state)->done.size(), 1u);
    // What is appended now is found again.
    ASSERT_THAT(store->Append(kRelease), IsOk());
    ASSERT_EQ((*LoadFrom(path))->done.size(), 2u);
  }
}

TEST(FileRunStoreTest, ALastRecordOfZerosIsDropped) {
  // What a file system may leave of an append whose data never reached the disk.
  const TempDir dir;
  const std::string path = UsedStore(dir);
  std::string bytes = *ReadFile(path);
  const size_t last = bytes.rfind("WRL1");
  std::fill(bytes.begin() + static_cast<long>(last), bytes.end(), '\0');
  ASSERT_THAT(WriteFileAtomically(path, bytes), IsOk());

  const auto state = LoadFrom(path);

  ASSERT_THAT(state, IsOk());
  EXPECT_EQ((*state)->done.size(), 1u);
}

TEST(FileRunStoreTest, DamageBeforeTheLastRecordIsNeverDropped) {
  const TempDir dir;
  const std::string path = UsedStore(dir);
  const std::string whole = *ReadFile(path);
  const size_t last = whole.rfind("WRL1");
  for (size_t at = 0; at < last; at += 7) {
    SCOPED_TRACE(at);
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    ASSERT_THAT(WriteFileAtomically(path, damaged), IsOk());

    EXPECT_THAT(LoadFrom(path), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("run.log")));
  }
}

TEST(FileRunStoreTest, AfterAFailedWriteNothingIsAccepted) {
  const TempDir dir;
  const std::string path = UsedStore(dir);
  auto store = *FileRunStore::Open(path);
  // A full disk: the file may not grow by more than a few bytes.
  signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  rlimit limit = old_limit;
  limit.rlim_cur = std::filesystem::file_size(path) + 10;
  setrlimit(RLIMIT_FSIZE, &limit);

  const absl::Status failed = store->Append(kRelease);
  setrlimit(RLIMIT_FSIZE, &old_limit);

  EXPECT_FALSE(failed.ok());
  EXPECT_THAT(store->Append(kRelease),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("earlier write failed")));
  EXPECT_FALSE(store->Replace(FullState()).ok());
  EXPECT_EQ((*LoadFrom(path))->done.size(), 2u);
}

TEST(FileRunStoreTest, ANewerFormatIsRefused) {
  const TempDir dir;
  const std::string path = UsedStore(dir);
  // StoredRunState.format is the first field of the first record: 08 01.
  std::string record = EncodeRecord(FullState());
  const size_t at = record.find("\x08\x01");
  ASSERT_NE(at, std::string::npos);
  record[at + 1] = 2;

  EXPECT_THAT(DecodeRecord(record),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("format 2")));
}

}  // namespace
}  // namespace weft
