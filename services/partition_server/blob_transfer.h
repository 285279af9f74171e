// BlobTransfer moves single blobs between memory and the stores of a cluster: the port that the
// network implements. One attempt each; whom to ask next is decided above.
//
// Errors: those of PutBlob and GetBlob (proto/weft/v1/partition_service.proto); Unavailable,
// DeadlineExceeded, Cancelled. Thread-safety: may be called from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "services/common/cluster_types.h"
#include "services/common/store_sync.h"
#include "services/partition_server/blob_format.h"
#include "services/partition_server/partition_shards.h"

namespace weft {

// Where the bytes of a segment lie.
using SegmentSource = absl::FunctionRef<BytePieces(int64_t index)>;
// Takes the next segment, and compares its checksum. An error ends the transfer with it.
using SegmentSink = absl::FunctionRef<absl::Status(int64_t index, uint64_t checksum,
                                                   absl::Span<const absl::string_view> pieces)>;

class BlobTransfer {
 public:
  virtual ~BlobTransfer() = default;

  // Stores a blob at the server at `address`; gives its place there. What `source` gives is read,
  // not copied, until this returns, however it ends. `checksums`: one a segment.
  virtual absl::StatusOr<Place> Put(const std::string& address, const ShardName& name,
                                    const BlobInfo& info, absl::Span<const uint64_t> checksums,
                                    SegmentSource source) = 0;

  // Gives the segments of a blob to `sink`, in order, all of them if it succeeds.
  // Errors: also DataLoss when the blob there is not `info`.
  virtual absl::Status Get(const std::string& address, const ShardName& name, const BlobInfo& info,
                           SegmentSink sink) = 0;
};

}  // namespace weft
