// A parameter server as the lock server sees it, with partition servers that are maps.
#include "services/param_server/param_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "services/common/run_config.h"
#include "services/param_server/memory_push_log.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;
using ::testing::SizeIs;
using testing::StatusIs;
using testing::TempDir;

constexpr const char* kRun = "0123456789abcdef0123456789abcdef";

class FakeTransfer : public BlobTransfer {
 public:
  absl::StatusOr<Place> Put(const std::string& address, const ShardName& name, const BlobInfo& info,
                            absl::Span<const uint64_t> checksums, SegmentSource source) override {
    if (address == down) return absl::UnavailableError("down");
    std::string bytes;
    for (int64_t i = 0; i < NumSegments(info.bytes); ++i) {
      const BytePieces pieces = source(i);
      EXPECT_EQ(SegmentChecksum(pieces), checksums[static_cast<size_t>(i)]);
      for (const absl::string_view p : pieces) bytes.append(p.data(), p.size());
    }
    EXPECT_EQ(bytes.size(), info.bytes);
    blobs[{address, name}] = bytes;
    return Place{address == "a:1" ? StoreId{1} : StoreId{2}, 0};
  }
  absl::Status Get(const std::string& address, const ShardName& name, const BlobInfo& info,
                   SegmentSink sink) override {
    if (address == down) return absl::UnavailableError("down");
    const std::string& bytes = blobs[{address, name}];
    EXPECT_EQ(bytes.size(), info.bytes);
    absl::string_view rest(bytes);
    for (int64_t i = 0; i < NumSegments(info.bytes); ++i) {
      const auto size = static_cast<size_t>(SegmentBytes(info.bytes, i));
      const absl::string_view piece = rest.substr(0, size);
      rest.remove_prefix(size);
      const absl::Status status = sink(i, SegmentChecksum({piece}), {piece});
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::map<std::pair<std::string, ShardName>, std::string> blobs;
  std::string down;
};

StoreRunInfo MakeRunInfo() {
  RunConfig config;
  config.entities.resize(2);
  config.entities[0].name = "user";
  config.entities[0].num_partitions = 2;
  config.entities[1].name = "tag";
  config.relations.resize(1);
  config.relations[0].name = "has";
  config.relations[0].rhs = 1;
  config.relations[0].operator_name = "translation";
  config.dimension = 400;
  config.entity_path = "e";
  config.edge_paths = {"p"};
  config.checkpoint_path = "c";
  // Larger than one segment.
  return {RunConfigToJson(config, false), 7, {{10, 10}, {4000}}, 0};
}

class ParamSyncTest : public ::testing::Test {
 protected:
  ParamSyncTest() {
    folder_ = *StoreFolder::Open(dir_.path());
    store_ = *RowBlockStore::Open({folder_->incarnation(), kMaxParamMessageBytes}, &log_);
    sync_ = std::make_unique<ParamSync>(
        folder_.get(), store_.get(), &blobs_,
        ServerInfo{ServerRole::kParam, folder_->store_id(), folder_->incarnation(), "here:1", true},
        [this] { ++changed_; });
  }

  StoreSyncClient::Answer AnswerWith(std::vector<NumberedOrder> orders, Generation generation = 1) {
    StoreSyncClient::Answer answer;
    answer.context = {kRun, 1, 5, generation};
    answer.instructions.revision = ++revision_;
    answer.instructions.servers.partition_servers = {{ServerRole::kPartition, 1, 1, "a:1", true},
                                                     {ServerRole::kPartition, 2, 1, "b:1", true}};
    answer.instructions.orders = std::move(orders);
    if (revision_ == 1) answer.run = MakeRunInfo();
    return answer;
  }
  // Gives an order and reports its result.
  OrderResult Do(uint64_t id, StoreOrder order, Generation generation = 1) {
    sync_->Report();
    EXPECT_THAT(sync_->Take(AnswerWith({{id, std::move(order)}}, generation)), IsOk());
    while (sync_->Report().results.empty()) std::this_thread::yield();
    return sync_->Report().results[0];
  }
  std::vector<float> Values() {
    const auto snapshot = store_->Snapshot(store_->share()->generation, std::nullopt);
    const auto all = (*snapshot)->values.span();
    return {all.begin(), all.end()};
  }

  TempDir dir_;
  MemoryPushLog log_;
  FakeTransfer transfer_;
  PartitionSnapshotBlobs blobs_{&transfer_};
  std::atomic<int> changed_ = 0;
  uint64_t revision_ = 0;
  std::unique_ptr<StoreFolder> folder_;
  std::unique_ptr<RowBlockStore> store_;
  std::unique_ptr<ParamSync> sync_;
};

TEST_F(ParamSyncTest, ANewServerIsBoundToTheRunAndInitialised) {
  const StoreReport first = sync_->Report();
  EXPECT_EQ(first.server.role, ServerRole::kParam);
  EXPECT_EQ(first.params.generation, 0);
  EXPECT_EQ(sync_->context().run_id, "");
  EXPECT_EQ(sync_->known_revision(), 0);

  EXPECT_THAT(Do(1, RestoreParameters{1, {}, 0, 0, 1}).status, IsOk());

  EXPECT_EQ(sync_->Report().params.generation, 1);
  EXPECT_EQ(sync_->context().run_id, kRun);
  EXPECT_EQ(sync_->context().generation, std::nullopt);
  EXPECT_EQ(sync_->known_revision(), 1);
  // A translation, two global embeddings, a table; and their sums.
  EXPECT_THAT(Values(), SizeIs((1 + 2) * 2 * 400 + 4000 * 401));
}

TEST_F(ParamSyncTest, AResultIsReportedUntilAReportWithItWasAnswered) {
  EXPECT_THAT(Do(1, RestoreParameters{1, {}, 0, 0, 1}).status, IsOk());
  EXPECT_THAT(sync_->Report().results, SizeIs(1));
  ASSERT_THAT(sync_->Take(AnswerWith({})), IsOk());

  EXPECT_THAT(sync_->Report().results, SizeIs(0));
}

TEST_F(ParamSyncTest, SnapshotsGoToPartitionServersAndComeBack) {
  Do(1, RestoreParameters{1, {}, 0, 0, 1});
  const std::vector<float> initial = Values();
  Do(2, CutParameters{1, 3});
  const OrderResult stored = Do(3, StoreSnapshot{{{kSnapshotType, 0}, 77}, 3, {2, 1}, 2});
  ASSERT_THAT(stored.status, IsOk());
  ASSERT_THAT(stored.stored->shards, SizeIs(1));
  EXPECT_THAT(stored.stored->shards[0].places, ElementsAre(Place{2, 0}, Place{1, 0}));

  transfer_.down = "b:1";  // the other one is asked
  EXPECT_THAT(Do(4, RestoreParameters{2, {*stored.stored}, 3, 0, 1}, 2).status, IsOk());
  EXPECT_EQ(sync_->Report().params.generation, 2);
  EXPECT_EQ(sync_->Report().params.first_open_pass, 3);
  EXPECT_EQ(Values(), initial);
}

TEST_F(ParamSyncTest, TooFewReplicasAreAFailure) {
  Do(1, RestoreParameters{1, {}, 0, 0, 1});
  transfer_.down = "b:1";
  const StoreSnapshot order{{{kSnapshotType, 0}, 77}, std::nullopt, {1, 2}, 2};
  EXPECT_EQ(Do(2, order).status.code(), absl::StatusCode::kUnavailable);
  transfer_.down = "";
  EXPECT_THAT(Do(3, order).status, IsOk());
}

TEST_F(ParamSyncTest, AnotherRunEndsTheServer) {
  ASSERT_THAT(sync_->Take(AnswerWith({})), IsOk());
  auto other = AnswerWith({});
  other.context.run_id = "ffffffffffffffffffffffffffffffff";

  EXPECT_THAT(sync_->Take(other), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace weft
