// PartitionTransfer moves partitions between memory and the partition servers of a cluster.
//
// A partition is cut in shards, which are spread over the stores that the lock server names, and
// move at once, each over a stream of its own. A shard is read from the first of its places that
// can give it, and stored at as many distinct stores as asked for. What is only unreachable is
// asked again, with back-off, until patience is over; what all places say is final.
//
// Reads straight into the table and stores straight from it: memory beyond that is bounded by the
// transport. Thread-safety: may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "services/common/cluster_types.h"
#include "services/common/embedding_partition.h"
#include "services/common/retry.h"
#include "services/partition_server/blob_transfer.h"

namespace weft {

// Where a version may be stored.
struct StoreTargets {
  std::vector<ServerInfo> servers;  // best first
  int replicas = 1;                 // distinct stores for each shard
};

// Asked before every attempt: stores come and go while one waits. An error ends the attempt.
using FindTargets = std::function<absl::StatusOr<StoreTargets>()>;
// Asked before every attempt of a read; an error ends it.
using StillWanted = std::function<absl::Status()>;
// The server at a place; none when it is not known, or what was there has ended with its process.
using FindServer = std::function<std::optional<ServerInfo>(const Place&)>;

class PartitionTransfer {
 public:
  struct Options {
    int64_t shard_bytes = int64_t{64} << 20;  // so that several streams share a partition
    int streams = 4;                          // of one call, at once
    RetryOptions retry;
    // A place says that a shard is not there, or damaged: for whoever tells the lock server. On the
    // threads that read; may be null.
    std::function<void(const ShardName&, const Place&, const absl::Status&)> on_unreadable;
  };

  // All must outlive this object. `cancel`: ends waits.
  PartitionTransfer(BlobTransfer* blobs, FindServer find_server, CancelFlag* cancel,
                    const Options& options)
      : blobs_(blobs), find_server_(std::move(find_server)), cancel_(cancel), options_(options) {}

  // Errors: NotFound, DataLoss (all places of a shard say so: report it), FailedPrecondition
  // (another shape); Unavailable, naming role, address and cause, when patience is over; those of
  // `still_wanted`, which may be null.
  absl::Status Read(const VersionInfo& version, EmbeddingPartition* out,
                    const StillWanted& still_wanted = nullptr) const;
  // Gives where it lies then. `partition` is not written by anybody meanwhile.
  // Errors: AlreadyExists, Aborted; Unavailable or ResourceExhausted when no store has taken a
  // shard until patience was over.
  absl::StatusOr<VersionInfo> Store(const PartitionVersion& version,
                                    const EmbeddingPartition& partition,
                                    const FindTargets& find_targets) const;

  // One shard of something else than a partition: its bytes. Errors: as Read and Store.
  absl::Status ReadShard(const PartitionVersion& version, const ShardInfo& shard,
                         absl::Span<char> out, const StillWanted& still_wanted = nullptr) const;
  // Fills in size, checksum and places. The shard's number says at which store it begins.
  absl::Status StoreShard(const PartitionVersion& version, absl::string_view bytes,
                          const FindTargets& find_targets, ShardInfo* shard) const;

 private:
  // Where the bytes [begin, begin + bytes) of a shard go to, or come from.
  using Target = absl::FunctionRef<MutableBytePieces(int64_t begin, int64_t bytes)>;

  // Calls `move` for every shard, several at once; gives the first error.
  absl::Status ForEachShard(std::vector<ShardInfo>* shards,
                            const std::function<absl::Status(ShardInfo*)>& move) const;
  // Repeats `attempt` while it fails for a while.
  absl::Status UntilPatienceIsOver(const std::function<absl::Status()>& attempt) const;

  absl::Status ReadOnce(const ShardName& name, const ShardInfo& shard, Target target) const;
  absl::Status StoreOnce(const ShardName& name, absl::Span<const uint64_t> checksums,
                         SegmentSource source, const FindTargets& find_targets,
                         ShardInfo* shard) const;

  BlobTransfer* const blobs_;
  const FindServer find_server_;
  CancelFlag* const cancel_;
  const Options options_;
};

}  // namespace weft
