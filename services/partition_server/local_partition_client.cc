#include "services/partition_server/local_partition_client.h"

#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"
#include "services/partition_server/blob_format.h"
#include "services/partition_server/partition_shards.h"

namespace weft {
namespace {

absl::Status ReadShard(BlobStore* store, const ShardName& name, const ShardInfo& shard,
                       EmbeddingPartition* out) {
  WEFT_ASSIGN_OR_RETURN(const BlobReader reader, store->OpenReader(name));
  if (reader.info().bytes != shard.size_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat(ToString(name), ": has ", reader.info().bytes, " bytes, not the ",
                     shard.size_bytes, " of ", out->count(), " x ", out->dimension(), " values"));
  }
  for (int64_t i = 0; i < reader.num_segments(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const SegmentBuffer segment, reader.ReadChecked(i));
    const char* from = segment.bytes.data();
    for (const absl::Span<char> piece :
         MutablePiecesOf(out, shard, i * kSegmentBytes, SegmentBytes(shard.size_bytes, i))) {
      std::memcpy(piece.data(), from, piece.size());
      from += piece.size();
    }
  }
  return absl::OkStatus();
}

absl::Status StoreShard(BlobStore* store, const ShardName& name, const ShardInfo& shard,
                        const EmbeddingPartition& partition) {
  const std::vector<uint64_t> checksums = SegmentChecksums(partition, shard);
  const BlobInfo info = {shard.size_bytes, BlobChecksum(shard.size_bytes, checksums)};
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<BlobUpload> upload, store->BeginUpload(name, info));
  for (int64_t i = 0; i < NumSegments(info.bytes); ++i) {
    WEFT_RETURN_IF_ERROR(
        upload->Append(i, checksums[static_cast<size_t>(i)],
                       PiecesOf(partition, shard, i * kSegmentBytes, SegmentBytes(info.bytes, i))));
  }
  return upload->Publish();
}

}  // namespace

absl::Status LocalPartitionClient::Read(const PartitionVersion& version, EmbeddingPartition* out) {
  for (const ShardInfo& shard : CutInShards(out->count(), out->dimension(), shard_bytes_)) {
    WEFT_RETURN_IF_ERROR(ReadShard(store_, {version, shard.shard}, shard, out));
  }
  return absl::OkStatus();
}

absl::Status LocalPartitionClient::Store(const PartitionVersion& version,
                                         const EmbeddingPartition& partition) {
  for (const ShardInfo& shard :
       CutInShards(partition.count(), partition.dimension(), shard_bytes_)) {
    WEFT_RETURN_IF_ERROR(StoreShard(store_, {version, shard.shard}, shard, partition));
  }
  return absl::OkStatus();
}

}  // namespace weft
