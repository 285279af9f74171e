#include "services/trainer/cluster/cluster_edge_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/edge_codec.h"
#include "services/partition_server/cluster_partition_client.h"
#include "services/trainer/edge_reader.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempDir;

constexpr Token kToken = 30;
constexpr Bucket kBucket = {1, 0};

// One server, that has what was put.
class OneServer : public BlobTransfer {
 public:
  absl::StatusOr<Place> Put(const std::string&, const ShardName& name, const BlobInfo&,
                            absl::Span<const uint64_t> checksums, SegmentSource source) override {
    std::string& bytes = blobs[name];
    for (size_t i = 0; i < checksums.size(); ++i) {
      for (const absl::string_view piece : source(static_cast<int64_t>(i))) {
        absl::StrAppend(&bytes, piece);
      }
    }
    return Place{1, 0};
  }
  absl::Status Get(const std::string&, const ShardName& name, const BlobInfo&,
                   SegmentSink sink) override {
    const auto blob = blobs.find(name);
    if (blob == blobs.end()) return absl::NotFoundError("not here");
    read.push_back(name.shard);
    return sink(0, SegmentChecksum({blob->second}), {blob->second});
  }
  std::map<ShardName, std::string> blobs;
  std::vector<uint32_t> read;
};

class NoPartitions : public PartitionClient {
 public:
  absl::Status Read(const PartitionVersion&, EmbeddingPartition*) override {
    return absl::InternalError("edges are no partitions");
  }
  absl::Status Store(const PartitionVersion&, const EmbeddingPartition&) override {
    return absl::InternalError("edges are no partitions");
  }
};

// A bucket of weighted edges between two relations, in a folder and, in shards of 7 edges, at a
// server.
class ClusterEdgeSourceTest : public ::testing::Test {
 protected:
  ClusterEdgeSourceTest() {
    RunConfig& config = task_.config;
    config.entities = {{"user", 2, false, {}}};
    config.relations = {{.name = "a", .lhs = 0, .rhs = 0}, {.name = "b", .lhs = 0, .rhs = 0}};
    config.dimension = 4;
    config.edge_paths = {dir_.File("edges")};
    config.eval_fraction = 0.3;
    std::filesystem::create_directories(config.edge_paths[0]);
    task_.seed = 3;
    task_.entity_counts = {{10, 20}};
    task_.spec = *MakeModelSpec(config, 0);

    for (int i = 0; i < kEdges; ++i) {
      edges_.lhs.push_back(i % 20);
      edges_.rhs.push_back(i % 10);
      edges_.rel.push_back(i / 3 % 2);
      edges_.weight.push_back(static_cast<float>(i));
    }
    auto writer = *EdgeBucketWriter::Create(EdgeBucketPath(config.edge_paths[0], kBucket), true);
    EXPECT_THAT(writer->Append(edges_), IsOk());
    EXPECT_THAT(writer->Finish(), IsOk());
    ServerList servers;
    servers.revision = 1;
    servers.partition_servers = {{ServerRole::kPartition, 1, 77, "here", true}};
    places_.SetServers(servers);
  }

  // Stores the edges; a grant names them.
  void Bring() {
    VersionInfo info = {version_, {}};
    for (int first = 0; first < kEdges; first += 7) {
      EdgeList part;
      for (int i = first; i < std::min(kEdges, first + 7); ++i) {
        const auto at = static_cast<size_t>(i);
        part.lhs.push_back(edges_.lhs[at]);
        part.rhs.push_back(edges_.rhs[at]);
        part.rel.push_back(edges_.rel[at]);
        part.weight.push_back(edges_.weight[at]);
      }
      ShardInfo& shard = info.shards.emplace_back();
      shard.shard = static_cast<uint32_t>(info.shards.size() - 1);
      shard.first_row = first;
      shard.num_rows = part.size();
      const auto targets = [&] { return StoreTargets{places_.servers().partition_servers, 1}; };
      EXPECT_THAT(transfer_.StoreShard(version_, EncodeEdges(part), targets, &shard), IsOk());
    }
    places_.AddGrant(40, {info}, {}, 1, {version_});
  }

  static constexpr int kEdges = 25;
  const PartitionVersion version_ = EdgesVersion(kToken, 0, kBucket, 2, 2);
  TempDir dir_;
  TrainingTask task_;
  EdgeList edges_;
  OneServer server_;
  NoPartitions no_partitions_;
  PlaceDirectory places_;
  CancelFlag cancel_;
  const RetryOptions retry_ = {absl::Milliseconds(20), absl::Milliseconds(1), absl::Seconds(2)};
  PartitionTransfer::Options TransferOptions() {
    PartitionTransfer::Options options;
    options.retry = retry_;
    options.on_unreadable = [this](const ShardName& shard, const Place& place,
                                   const absl::Status&) { reports_.NoteUnreadable(shard, place); };
    return options;
  }
  const PartitionTransfer transfer_{&server_, FindServerIn(&places_), &cancel_, TransferOptions()};
  std::vector<ShardName> reported_;
  int64_t moved_ = 0;
  ReportingPartitionClient reports_{&no_partitions_,
                                    &places_,
                                    [this](Token, const PartitionVersion& version, uint32_t shard,
                                           const Place&) -> absl::StatusOr<std::vector<Place>> {
                                      reported_.push_back({version, shard});
                                      return std::vector<Place>();
                                    },
                                    [this](int64_t bytes) { moved_ += bytes; },
                                    retry_,
                                    &cancel_};
  ClusterEdgeSource source_{{kToken, 2, 2}, &places_, &transfer_, &reports_};
};

std::vector<Edge> All(const GroupedEdges& edges) {
  std::vector<Edge> all;
  for (int64_t i = 0; i < edges.size(); ++i) all.push_back(edges.edges[i]);
  return all;
}

TEST_F(ClusterEdgeSourceTest, GivesTheSameEdgesInTheSameOrderAsAFolder) {
  Bring();
  for (const int chunks : {1, 2, 4}) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const PassPosition position = {.edge_chunk = chunk, .num_edge_chunks = chunks};

      const auto folder = EdgeReader(task_).Read(position, kBucket);
      const auto cluster = EdgeReader(task_, &source_).Read(position, kBucket);

      ASSERT_THAT(folder, IsOk());
      ASSERT_THAT(cluster, IsOk());
      EXPECT_GT(cluster->held_out.size(), 0);
      EXPECT_EQ(All(cluster->train), All(folder->train));
      EXPECT_EQ(All(cluster->held_out), All(folder->held_out));
    }
  }
  EXPECT_GT(moved_, 0);
}

TEST_F(ClusterEdgeSourceTest, ReadsTheShardsOfAChunkOnly) {
  Bring();

  ASSERT_THAT(EdgeReader(task_, &source_).Read({.edge_chunk = 1, .num_edge_chunks = 2}, kBucket),
              IsOk());

  EXPECT_THAT(server_.read, ElementsAre(1, 2, 3));
}

TEST_F(ClusterEdgeSourceTest, WhatNoGrantNamesCannotBeRead) {
  EXPECT_THAT(EdgeReader(task_, &source_).Read({}, kBucket), StatusIs(absl::StatusCode::kAborted));
  places_.AddGrant(40, {}, {}, 1);
  EXPECT_THAT(EdgeReader(task_, &source_).Read({}, kBucket), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClusterEdgeSourceTest, WhatIsNotThereIsReported) {
  Bring();
  server_.blobs.erase({version_, 2});

  EXPECT_THAT(EdgeReader(task_, &source_).Read({}, kBucket),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not here")));

  ASSERT_FALSE(reported_.empty());
  EXPECT_EQ(reported_[0].version, version_);
}

TEST_F(ClusterEdgeSourceTest, IdsOutOfRangeReachNoKernel) {
  edges_.lhs[20] = 20;
  Bring();

  EXPECT_THAT(EdgeReader(task_, &source_).Read({}, kBucket),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lhs[20] is 20")));
}

}  // namespace
}  // namespace weft
