// Partition servers behind sockets, and clients of them.
#pragma once

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/grpc_status.h"
#include "services/common/rpc/proto_convert.h"
#include "services/partition_server/grpc_blob_client.h"
#include "tests/partition_server/blob_testing.h"
#include "tests/partition_server/partition_server_fixture.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft::testing {

class PartitionServiceTest : public ::testing::Test {
 protected:
  using Keep = TestPartitionServer::Keep;

  std::unique_ptr<TestPartitionServer> Start(Keep keep, const std::string& name = "store") {
    return std::make_unique<TestPartitionServer>(dir.File(name), keep);
  }

  absl::StatusOr<Place> Put(const TestPartitionServer& server, const ShardName& name,
                            const std::string& content) {
    std::vector<uint64_t> checksums;
    for (int64_t i = 0; i < NumSegments(static_cast<int64_t>(content.size())); ++i) {
      checksums.push_back(SegmentChecksum({SegmentOf(content, i)}));
    }
    return client.Put(server.address(), name, InfoOf(content), checksums,
                      [&](int64_t i) { return BytePieces{SegmentOf(content, i)}; });
  }

  absl::StatusOr<std::string> Get(const TestPartitionServer& server, const ShardName& name,
                                  const BlobInfo& info) {
    std::string content;
    const absl::Status status =
        client.Get(server.address(), name, info,
                   [&](int64_t, uint64_t checksum, absl::Span<const absl::string_view> pieces) {
                     EXPECT_EQ(SegmentChecksum(pieces), checksum);
                     for (const absl::string_view piece : pieces)
                       content.append(piece.data(), piece.size());
                     return absl::OkStatus();
                   });
    if (!status.ok()) return status;
    return content;
  }

  std::unique_ptr<v1::PartitionService::Stub> Stub(const TestPartitionServer& server) {
    return v1::PartitionService::NewStub(*channels.Get(server.address()));
  }

  // A stream made by protobuf, as any other client would make it.
  absl::Status PutMessages(const TestPartitionServer& server,
                           const std::vector<v1::PutBlobRequest>& messages,
                           v1::PutBlobResponse* response) {
    grpc::ClientContext context;
    const auto stub = Stub(server);
    const auto writer = stub->PutBlob(&context, response);
    for (const v1::PutBlobRequest& message : messages) {
      if (!writer->Write(message)) break;
    }
    writer->WritesDone();
    return FromGrpcStatus(writer->Finish());
  }

  static v1::PutBlobRequest Header(const ShardName& name, const BlobInfo& info,
                                   const RunContext& context = kContext) {
    v1::PutBlobRequest request;
    *request.mutable_header()->mutable_context() = ToProto(context);
    *request.mutable_header()->mutable_name() = ToProto(name);
    request.mutable_header()->set_size_bytes(info.bytes);
    request.mutable_header()->set_xxh3(info.checksum);
    return request;
  }

  static v1::PutBlobRequest Segment(const std::string& content, int64_t index) {
    const absl::string_view segment = SegmentOf(content, index);
    v1::PutBlobRequest request;
    request.mutable_segment()->set_index(static_cast<uint32_t>(index));
    request.mutable_segment()->set_xxh3(SegmentChecksum({segment}));
    request.mutable_segment()->set_data(segment.data(), segment.size());
    return request;
  }

  static constexpr ShardName kName = {{{0, 0}, 7}, 0};

  TempDir dir;
  ChannelPool channels{{.connections = 2, .security = {}}};
  RunFence fence{kContext};
  GrpcBlobClient client{&channels, &fence, {}};
};

}  // namespace weft::testing
