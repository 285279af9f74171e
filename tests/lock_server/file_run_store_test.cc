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
  state.paused = true;
  state.generation = 4;
  state.sessions[0xABCDEF0123456789] = {"t", 7, 75, {75}, {{73, false}, {74, true}}};
  state.grants[75] = {0xABCDEF0123456789,
                      {{1, 0}},
                      {{{0, 1}, 77, GrantedPartition::Source::kRead},
                       {{0, 0}, 0, GrantedPartition::Source::kInitialise}}};
  state.attempts[{1, 0}] = 2;
  state.config_json = "{}";
  state.bucket_edges = {{1, 2, 3, 4}};
  state.servers = {{{ServerRole::kParam, 21, 5, "a:1", true}, true},
                   {{ServerRole::kPartition, 11, 6, "b:2", false}, false}};
  state.places.Set({{0, 1}, 77}, {{0, 0, 10, 100, 9, {{11, 6}}}, {1, 10, 1, 10, 8, {{11, 0}}}});
  Manifest manifest;
  manifest.token = 70;
  manifest.generation = 3;
  manifest.version = 8;
  manifest.state = Manifest::State::kCommitted;
  manifest.preserved = true;
  manifest.position = {8, 2, 1, 3, 4};
  manifest.early_stopping = state.early_stopping;
  manifest.versions = {{{0, 1}, 70}, {{kSnapshotType, 0}, 70}};
  manifest.metrics = {{"mrr", 0.5}};
  state.manifests.Put(manifest);
  state.origin = 70;
  state.parameters_ready = true;
  state.last_rollback = "r";
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
  EXPECT_EQ(a.paused, b.paused);
  EXPECT_EQ(a.generation, b.generation);
  ASSERT_EQ(a.sessions.size(), b.sessions.size());
  for (const auto& [id, session] : a.sessions) {
    const SessionRecord& other = b.sessions.at(id);
    EXPECT_EQ(session.name, other.name);
    EXPECT_EQ(session.number, other.number);
    EXPECT_EQ(session.granted, other.granted);
    EXPECT_EQ(session.grants, other.grants);
    EXPECT_EQ(session.outcomes, other.outcomes);
  }
  ASSERT_EQ(a.grants.size(), b.grants.size());
  for (const auto& [token, grant] : a.grants) EXPECT_EQ(grant, b.grants.at(token));
  EXPECT_EQ(a.attempts, b.attempts);
  EXPECT_EQ(a.config_json, b.config_json);
  EXPECT_EQ(a.bucket_edges, b.bucket_edges);
  EXPECT_EQ(a.servers, b.servers);
  EXPECT_EQ(a.places.versions(), b.places.versions());
  ASSERT_EQ(a.manifests.manifests().size(), b.manifests.manifests().size());
  for (const auto& [token, manifest] : a.manifests.manifests()) {
    const Manifest& other = b.manifests.manifests().at(token);
    EXPECT_EQ(manifest.generation, other.generation);
    EXPECT_EQ(manifest.version, other.version);
    EXPECT_EQ(manifest.state, other.state);
    EXPECT_EQ(manifest.preserved, other.preserved);
    EXPECT_EQ(manifest.position, other.position);
    EXPECT_EQ(manifest.early_stopping, other.early_stopping);
    EXPECT_EQ(manifest.versions, other.versions);
    EXPECT_EQ(manifest.metrics, other.metrics);
    EXPECT_EQ(manifest.done.size(), other.done.size());
    EXPECT_EQ(manifest.ended_pass.size(), other.ended_pass.size());
  }
  EXPECT_EQ(a.origin, b.origin);
  EXPECT_EQ(a.parameters_ready, b.parameters_ready);
  EXPECT_EQ(a.last_rollback, b.last_rollback);
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

const GrantReleased kRelease = {78, {{0, 0}, {0, 1}}, {FullStats()}, {}, 0, false};

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

  const auto decoded = DecodeRecord(EncodeState(state));

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
  std::string record = EncodeState(FullState());
  const size_t at = record.find("\x08\x01");
  ASSERT_NE(at, std::string::npos);
  record[at + 1] = 2;

  EXPECT_THAT(DecodeRecord(record),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("format 2")));
}

}  // namespace
}  // namespace weft
