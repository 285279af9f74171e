#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "services/common/rpc/grpc_status.h"
#include "services/common/rpc/proto_convert.h"
#include "services/partition_server/cluster_partition_client.h"
#include "services/partition_server/partition_shards.h"
#include "tests/partition_server/blob_testing.h"
#include "tests/partition_server/partition_server_fixture.h"
#include "tests/partition_server/partition_service_fixture.h"
#include "tests/testing/recorded_metrics.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

FindServer FindIn(std::vector<ServerInfo> servers) {
  return [servers](const Place& place) -> std::optional<ServerInfo> {
    for (const ServerInfo& server : servers) {
      if (server.store_id == place.store_id) return server;
    }
    return std::nullopt;
  };
}

double Transferred(const TestPartitionServer& server, const std::string& sample) {
  RecordedMetrics page;
  server.transfers.Write(&page);
  return page.Value(sample);
}
double BytesReceived(const TestPartitionServer& server) {
  return Transferred(server, "weft_transfer_received_bytes_total{role=other}");
}

TEST_F(PartitionServiceTest, GivesBackWhatWasPutAndSaysWhereItLies) {
  for (const Keep keep : {Keep::kMemory, Keep::kDisk}) {
    const auto server = Start(keep, keep == Keep::kDisk ? "disk" : "memory");
    for (const int64_t bytes : {int64_t{0}, int64_t{1}, 3 * kSegmentBytes + 17}) {
      const std::string content = Content(1, bytes);
      const ShardName name = {{{0, 0}, static_cast<Token>(bytes)}, 1};

      const auto place = Put(*server, name, content);

      ASSERT_THAT(place, IsOk());
      EXPECT_EQ(place->store_id, server->store.store_id());
      EXPECT_EQ(place->incarnation, keep == Keep::kDisk ? 0 : server->store.incarnation());
      const auto got = Get(*server, name, InfoOf(content));
      ASSERT_THAT(got, IsOk());
      EXPECT_TRUE(*got == content);
    }
  }
}

TEST_F(PartitionServiceTest, SpeaksProtobufWithEverybodyElse) {
  const auto server = Start(Keep::kMemory);
  const std::string content = Content(1, kSegmentBytes + 10);
  v1::PutBlobResponse stored;
  ASSERT_THAT(
      PutMessages(*server,
                  {Header(kName, InfoOf(content)), Segment(content, 0), Segment(content, 1)},
                  &stored),
      IsOk());
  EXPECT_EQ(stored.store_id(), server->store.store_id());
  EXPECT_EQ(stored.context().term(), kContext.term);

  grpc::ClientContext context;
  v1::GetBlobRequest request;
  *request.mutable_context() = ToProto(kContext);
  *request.mutable_name() = ToProto(kName);
  request.set_first_segment(1);
  const auto stub = Stub(*server);
  const auto reader = stub->GetBlob(&context, request);
  v1::GetBlobResponse header;
  v1::GetBlobResponse segment;
  v1::GetBlobResponse none;
  ASSERT_TRUE(reader->Read(&header));
  ASSERT_TRUE(reader->Read(&segment));
  EXPECT_FALSE(reader->Read(&none));
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_EQ(header.header().size_bytes(), kSegmentBytes + 10);
  EXPECT_EQ(segment.segment().index(), 1u);
  EXPECT_TRUE(segment.segment().data() == SegmentOf(content, 1));
}

TEST_F(PartitionServiceTest, PuttingTheSameAgainIsAnsweredAtOnceAndAnotherContentIsRefused) {
  const auto server = Start(Keep::kMemory);
  const std::string content = Content(1, 20 * kSegmentBytes);
  ASSERT_THAT(Put(*server, kName, content), IsOk());
  const double received = BytesReceived(*server);
  ASSERT_GE(received, 20 * kSegmentBytes);

  EXPECT_THAT(Put(*server, kName, content), IsOk());
  EXPECT_EQ(BytesReceived(*server), received);
  EXPECT_THAT(Put(*server, kName, Content(2, 100)), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(PartitionServiceTest, WhatDoesNotFitIsRefusedAndCountedAndChangesNothing) {
  const auto server = Start(Keep::kMemory);
  const std::string content = Content(1, 2 * kSegmentBytes);
  const BlobInfo info = InfoOf(content);
  v1::PutBlobResponse ignored;
  v1::PutBlobRequest wrong_checksum = Segment(content, 1);
  wrong_checksum.mutable_segment()->set_xxh3(1);
  v1::PutBlobRequest short_segment = Segment(content, 0);
  short_segment.mutable_segment()->mutable_data()->resize(100);
  const v1::PutBlobRequest head = Header(kName, info);
  const v1::PutBlobRequest first = Segment(content, 0);
  const v1::PutBlobRequest second = Segment(content, 1);
  using Messages = std::vector<v1::PutBlobRequest>;

  int64_t malformed = 0;
  for (const Messages& messages :
       {Messages{head, second}, Messages{head, first, first}, Messages{head, first},
        Messages{head, first, second, second}, Messages{first}, Messages{}, Messages{head, head},
        Messages{head, short_segment}, Messages{v1::PutBlobRequest()},
        Messages{Header(kName, {int64_t{1} << 62, 0})}, Messages{Header(kName, {-1, 0})}}) {
    EXPECT_THAT(PutMessages(*server, messages, &ignored),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(server->service.stats().malformed, ++malformed);
  }
  EXPECT_THAT(PutMessages(*server, {head, first, wrong_checksum}, &ignored),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(PutMessages(*server, {Header(kName, {info.bytes, 1}), first, second}, &ignored),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(server->service.stats().wrong_checksums, 2);
  EXPECT_THAT(PutMessages(*server, {Header(kName, {int64_t{1} << 39, 0})}, &ignored),
              StatusIs(absl::StatusCode::kResourceExhausted));

  EXPECT_TRUE(server->store.Passing().empty());
  EXPECT_EQ(server->store.stats().uploads, 0);
  EXPECT_EQ(server->service.stats().blobs_stored, 0);
  EXPECT_THAT(Put(*server, kName, content), IsOk());
  EXPECT_THAT(Put(*server, kName, Content(2, 100)), StatusIs(absl::StatusCode::kAlreadyExists));

  testing::RecordedMetrics page;
  server->service.WriteMetrics(&page);
  server->store.WriteMetrics(&page);
  const auto refused = [&](const std::string& reason) {
    return page.Value("weft_partition_refused_calls_total{reason=" + reason + "}");
  };
  EXPECT_EQ(refused("malformed"), malformed);
  EXPECT_EQ(refused("wrong_checksum"), 2);
  EXPECT_EQ(refused("no_room"), 1);
  EXPECT_EQ(refused("other_content"), 1);
  EXPECT_EQ(page.Value("weft_partition_stored_blobs_total"), 1);
  EXPECT_EQ(page.Value("weft_partition_blobs{storage=memory,state=whole}"), 1);
  EXPECT_EQ(page.Value("weft_partition_blob_bytes{storage=memory,state=whole}"), info.bytes);
  EXPECT_EQ(page.Value("weft_partition_blobs{storage=memory,state=uploading}"), 0);
  EXPECT_EQ(page.Value("weft_partition_blobs{storage=disk,state=whole}"), 0);
  EXPECT_GT(page.Value("weft_partition_free_bytes"), 0);
}

TEST_F(PartitionServiceTest, AnotherRunAndALowerTermAreRefusedAndCounted) {
  const auto server = Start(Keep::kMemory);
  const std::string content = Content(1, 100);
  const BlobInfo info = InfoOf(content);
  v1::PutBlobResponse ignored;
  const auto put = [&](const RunContext& context) {
    return PutMessages(*server, {Header(kName, info, context), Segment(content, 0)}, &ignored);
  };

  const std::string other(32, 'b');
  EXPECT_THAT(
      put({other, 3, 99, std::nullopt}),
      StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr(kRunId), HasSubstr(other))));
  EXPECT_EQ(server->service.stats().wrong_runs, 1);
  EXPECT_THAT(put({kRunId, 2, 98, std::nullopt}), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(server->service.stats().stale_calls, 1);
  EXPECT_THAT(put({}), StatusIs(absl::StatusCode::kInvalidArgument));
  // A higher term is a later life of the lock server: from then on the old one is stale.
  EXPECT_THAT(put({kRunId, 4, 100, std::nullopt}), IsOk());
  EXPECT_THAT(Get(*server, kName, info), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(PartitionServiceTest, AServerWhoseDiskHasFailedIsUnavailableAndStillRead) {
  const auto server = Start(Keep::kMemory);
  const std::string content = Content(1, 100);
  const ShardName other = {{{0, 0}, 99}, 0};
  ASSERT_THAT(Put(*server, kName, content), IsOk());
  server->faults->publish = absl::InternalError("EIO");
  ASSERT_FALSE(server->failed);

  const auto unavailable =
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("partition server can write no more"), HasSubstr("EIO")));
  EXPECT_THAT(Put(*server, other, content), unavailable);
  EXPECT_TRUE(server->failed);
  server->faults->publish = absl::OkStatus();
  EXPECT_THAT(Put(*server, other, content), unavailable);
  const auto got = Get(*server, kName, InfoOf(content));
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(*got, content);
}

TEST_F(PartitionServiceTest, BeforeItIsRegisteredAServerIsUnavailable) {
  const TestPartitionServer server(dir.File("new"), Keep::kMemory, /*registered=*/false);

  EXPECT_THAT(Get(server, kName, {1, 1}), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Put(server, kName, "x"), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(PartitionServiceTest, AnAddressWhereNobodyListensIsUnavailable) {
  EXPECT_THAT(client.Get("127.0.0.1:1", kName, {1, 1}, [](auto...) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(PartitionServiceTest, AbsenceAndDamageAreStatements) {
  const auto server = Start(Keep::kDisk);
  EXPECT_THAT(Get(*server, kName, {1, 1}), StatusIs(absl::StatusCode::kNotFound));

  const std::string content = Content(1, 2 * kSegmentBytes);
  ASSERT_THAT(Put(*server, kName, content), IsOk());
  EXPECT_THAT(Get(*server, kName, {2 * kSegmentBytes, 1}), StatusIs(absl::StatusCode::kDataLoss));
  for (const auto& entry : std::filesystem::directory_iterator(dir.File("store/blobs/db"))) {
    if (entry.path().extension() != ".sst") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(kSegmentBytes + 100);
    file.write("damaged", 7);
  }

  EXPECT_THAT(Get(*server, kName, InfoOf(content)), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(server->store.Stat(kName), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(PartitionServiceTest, StatTellsAndVerifies) {
  const auto server = Start(Keep::kMemory);
  const std::string content = Content(1, 1000);
  ASSERT_THAT(Put(*server, kName, content), IsOk());
  const auto stub = Stub(*server);
  v1::StatBlobRequest request;
  *request.mutable_context() = ToProto(kContext);
  *request.mutable_name() = ToProto(kName);
  request.set_verify(true);
  v1::StatBlobResponse response;
  grpc::ClientContext context;

  ASSERT_TRUE(stub->StatBlob(&context, request, &response).ok());

  EXPECT_EQ(response.size_bytes(), 1000);
  EXPECT_EQ(response.xxh3(), InfoOf(content).checksum);
  EXPECT_EQ(response.place().incarnation(), server->store.incarnation());
}

TEST_F(PartitionServiceTest, ManifestsAreListedForWhoeverKnowsNoRun) {
  const auto server = Start(Keep::kMemory);
  const auto manifest = [](PartitionId life, Token token) {
    return ShardName{{{kManifestType, life}, token}, 0};
  };
  const std::string content = Content(1, 1000);
  ASSERT_THAT(Put(*server, manifest(1, 5), content), IsOk());
  ASSERT_THAT(Put(*server, manifest(2, 9), content), IsOk());
  ASSERT_THAT(Put(*server, {{{0, 0}, 10}, 0}, content), IsOk());
  ASSERT_THAT(server->store.Persist(manifest(2, 9)), IsOk());
  RunFence nothing;
  GrpcBlobClient stranger(&channels, &nothing, {});

  const auto list = stranger.ListManifests(server->address());

  ASSERT_THAT(list, IsOk());
  EXPECT_THAT(*list, ::testing::ElementsAre(::testing::Pair(manifest(2, 9), InfoOf(content)),
                                            ::testing::Pair(manifest(1, 5), InfoOf(content))));
  EXPECT_EQ(nothing.known().run_id, kRunId);
  EXPECT_EQ(nothing.known().term, 3u);
  const TestPartitionServer fresh(dir.File("new"), Keep::kMemory, /*registered=*/false);
  EXPECT_THAT(stranger.ListManifests(fresh.address()), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(PartitionServiceTest, CopiesFromTheFirstStoreThatHasIt) {
  const auto empty = Start(Keep::kMemory, "empty");
  const auto full = Start(Keep::kMemory, "full");
  const auto copy = Start(Keep::kDisk, "copy");
  const std::string content = Content(1, 2 * kSegmentBytes + 5);
  ASSERT_THAT(Put(*full, kName, content), IsOk());
  const BlobInfo info = InfoOf(content);
  v1::CopyBlobRequest request;
  *request.mutable_context() = ToProto(kContext);
  *request.mutable_version() = ToProto(kName.version);
  request.mutable_shard()->set_size_bytes(info.bytes);
  request.mutable_shard()->set_xxh3(info.checksum);
  for (const std::string& address : {empty->address(), full->address()}) {
    request.add_addresses(address);
  }
  const auto stub = Stub(*copy);
  for (int repeat = 0; repeat < 2; ++repeat) {
    v1::CopyBlobResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(stub->CopyBlob(&context, request, &response).ok());
    EXPECT_EQ(response.place().store_id(), copy->store.store_id());
    EXPECT_EQ(response.place().incarnation(), 0u);
  }

  EXPECT_TRUE(*Get(*copy, kName, info) == content);
}

TEST_F(PartitionServiceTest, ReadsRowsInTheOrderAskedForAndPartsOfThem) {
  const auto server = Start(Keep::kMemory);
  // 3 rows of 2 values, then 3 sums.
  const float values[] = {0, 1, 10, 11, 20, 21, 7, 7, 7};
  ASSERT_THAT(Put(*server, kName, std::string(reinterpret_cast<const char*>(values), 36)), IsOk());
  const auto stub = Stub(*server);
  const auto read = [&](std::vector<int64_t> rows, uint32_t dimension, uint32_t first,
                        uint32_t columns) -> absl::StatusOr<std::vector<float>> {
    v1::ReadRowsRequest request;
    *request.mutable_context() = ToProto(kContext);
    *request.mutable_name() = ToProto(kName);
    request.set_dimension(dimension);
    request.mutable_rows()->Add(rows.begin(), rows.end());
    request.set_first_column(first);
    request.set_num_columns(columns);
    v1::ReadRowsResponse response;
    grpc::ClientContext context;
    context.AddMetadata("weft-role", "trainer");
    const absl::Status status = FromGrpcStatus(stub->ReadRows(&context, request, &response));
    if (!status.ok()) return status;
    std::vector<float> result(response.values().size() / sizeof(float));
    if (!result.empty()) {
      std::memcpy(result.data(), response.values().data(), response.values().size());
    }
    return result;
  };

  EXPECT_EQ(*read({2, 0}, 2, 0, 0), (std::vector<float>{20, 21, 0, 1}));
  EXPECT_EQ(*read({1, 2}, 2, 1, 1), (std::vector<float>{11, 21}));
  EXPECT_EQ(*read({}, 2, 0, 0), std::vector<float>());
  EXPECT_EQ(Transferred(*server, "weft_transfer_sent_bytes_total{role=trainer}"), 24);
  EXPECT_THAT(read({3}, 2, 0, 0), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(read({-1}, 2, 0, 0), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(read({0}, 2, 2, 1), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(read({0}, 3, 0, 0), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(read(std::vector<int64_t>(kSegmentBytes / 8 + 1), 2, 0, 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Transferred(*server, "weft_transfer_sent_bytes_total{role=trainer}"), 24)
      << "what is refused is not sent";
}

TEST_F(PartitionServiceTest, AReadOfWhatNoServerHasAnyMoreEndsWithTheSession) {
  PlaceDirectory places;
  CancelFlag cancel;
  const PartitionTransfer transfer(&client, FindServerIn(&places), &cancel, {});
  ClusterPartitionClient partitions(&places, &transfer);
  EmbeddingPartition table(2, 2);
  VersionInfo lost = {{{0, 0}, 7}, CutInShards(2, 2, 1 << 20)};
  lost.shards[0].places = {{12345, 1}};  // of a memory store that has restarted since
  places.AddGrant(8, {lost}, {}, 1, {lost.version});

  absl::Status status;
  std::thread reader([&] { status = partitions.Read(lost.version, &table); });
  places.Clear();
  reader.join();

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted));
}

// What gRPC does to calls whose server is stopped while they are under way.
class StoppingService : public v1::PartitionService::Service {
  grpc::Status PutBlob(grpc::ServerContext*, grpc::ServerReader<v1::PutBlobRequest>*,
                       v1::PutBlobResponse*) override {
    return grpc::Status::CANCELLED;
  }
  grpc::Status GetBlob(grpc::ServerContext*, const v1::GetBlobRequest*,
                       grpc::ServerWriter<v1::GetBlobResponse>*) override {
    return grpc::Status::CANCELLED;
  }
};

TEST_F(PartitionServiceTest, ATransferThatAStoppingServerEndsCanBeRepeated) {
  StoppingService service;
  const auto runner = ServerRunner::Start({}, {&service});
  ASSERT_THAT(runner.status(), IsOk());
  const std::string& address = (*runner)->address();
  const BlobInfo info = InfoOf("abc");

  EXPECT_THAT(client.Put(address, kName, info, {SegmentChecksum({"abc"})},
                         [](int64_t) { return BytePieces{"abc"}; }),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(client.Get(address, kName, info, [](auto&&...) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kUnavailable));
}

// --- large partitions, with gRPC's limits in place ---

int64_t StatusKilobytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1));
  }
  return 0;
}

TEST_F(PartitionServiceTest, ALargePartitionWithRowsAboveFourMegabytesStreamsInBoundedMemory) {
  const auto server = Start(Keep::kDisk);
  CancelFlag cancel;
  PartitionTransfer::Options options;
  options.shard_bytes = 64 << 20;
  options.streams = 2;
  const PartitionTransfer partitions(&client, FindIn({server->info()}), &cancel, options);
  constexpr int64_t kDimension = 1'300'000;  // 5.2 MB a row
  EmbeddingPartition table(40, kDimension);
  for (int64_t i = 0; i < table.embeddings.size(); ++i) {
    table.embeddings.data()[i] = static_cast<float>(i % 1'000'003);
  }
  for (int64_t i = 0; i < 40; ++i) table.adagrad_sums.data()[i] = static_cast<float>(i);
  EmbeddingPartition read(40, kDimension);
  for (float& x : read.embeddings.span()) x = -1;  // its memory is there before
  std::ofstream("/proc/self/clear_refs") << 5;     // the peak begins anew
  const int64_t before = StatusKilobytes("VmRSS");

  const auto stored = partitions.Store({{0, 0}, 7}, table, [&] {
    return StoreTargets{{server->info()}, 1};
  });
  ASSERT_THAT(stored, IsOk());
  ASSERT_THAT(partitions.Read(*stored, &read), IsOk());

  EXPECT_GE(stored->shards.size(), 3u);
  EXPECT_EQ(Checksum(read), Checksum(table));
  const int64_t peak = StatusKilobytes("VmHWM");
  // 208 MB went both ways. Two streams of 16 MiB windows at both ends and a few segments.
  EXPECT_LT(peak - before, 120 << 10) << before << " kB before, " << peak << " kB at most";
}

}  // namespace
}  // namespace weft::testing
