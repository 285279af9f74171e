// GrpcBlobClient is BlobTransfer over gRPC: raw bytes both ways, nothing copied when sending,
// received segments given on in the pieces in which they came.
//
// Bounded memory: one segment beside what gRPC's windows hold, each way and stream.
// Thread-safety: any thread, except gRPC's own.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/unary_call.h"
#include "services/common/run_fence.h"
#include "services/common/transfer_metrics.h"
#include "services/partition_server/blob_transfer.h"
#include "services/partition_server/store_orders.h"

namespace weft {

class GrpcBlobClient : public BlobTransfer, public BlobFetcher {
 public:
  struct Options {
    // A transfer that is slower than this has failed.
    absl::Duration timeout = absl::Seconds(30);
    int64_t bytes_per_second = int64_t{4} << 20;
    CallGroup* group = nullptr;
    TransferMetrics* metrics = nullptr;  // counts what is moved; may be null
  };

  // `channels` and `fence` (what this process knows of its run) must outlive this object.
  GrpcBlobClient(ChannelPool* channels, RunFence* fence, const Options& options)
      : channels_(channels), fence_(fence), options_(options) {}

  absl::StatusOr<Place> Put(const std::string& address, const ShardName& name, const BlobInfo& info,
                            absl::Span<const uint64_t> checksums, SegmentSource source) override;
  absl::Status Get(const std::string& address, const ShardName& name, const BlobInfo& info,
                   SegmentSink sink) override;
  absl::Status Fetch(const std::string& address, const ShardName& name, const BlobInfo& info,
                     BlobUpload* upload) override;

  // The manifests of a run that lie there, newest first; what the fence knows may be nothing yet.
  // Errors: those of the fence, and of the call.
  using Manifests = std::vector<std::pair<ShardName, BlobInfo>>;
  absl::StatusOr<Manifests> ListManifests(const std::string& address);

 private:
  CallOptions OptionsFor(int64_t bytes) const;
  // A transfer that went well is over.
  void Count(TransferMetrics::Direction direction, int64_t bytes, absl::Time begin) const;
  RunContext context() const;

  ChannelPool* const channels_;
  RunFence* const fence_;
  const Options options_;
};

}  // namespace weft
