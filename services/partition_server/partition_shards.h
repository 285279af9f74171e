// How a partition is cut in shards, and where in its memory the bytes of a shard lie.
//
// A shard holds consecutive rows. As bytes it is its rows' vectors, then its rows' Adagrad sums,
// all little-endian float32, row after row: what lies in memory, so that nothing is packed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/common/cluster_types.h"
#include "services/common/embedding_partition.h"

namespace weft {

// Bytes of one shard of a partition with `dimension` floats a row.
int64_t ShardBytes(int64_t num_rows, int64_t dimension);

// Shards of about `shard_bytes`, of equal numbers of rows but the last; at least one, without rows
// if the partition has none. Only shard, rows and size are set.
std::vector<ShardInfo> CutInShards(int64_t count, int64_t dimension, int64_t shard_bytes);

// FailedPrecondition when the shards are not, one after the other, exactly the rows of a partition
// of this shape.
absl::Status CheckShards(const VersionInfo& version, int64_t count, int64_t dimension);

// The memory of bytes [begin, begin + bytes) of a shard of `partition`: one or two pieces.
using BytePieces = absl::InlinedVector<absl::string_view, 2>;
using MutableBytePieces = absl::InlinedVector<absl::Span<char>, 2>;
BytePieces PiecesOf(const EmbeddingPartition& partition, const ShardInfo& shard, int64_t begin,
                    int64_t bytes);
MutableBytePieces MutablePiecesOf(EmbeddingPartition* partition, const ShardInfo& shard,
                                  int64_t begin, int64_t bytes);

// The checksums of a shard's segments.
std::vector<uint64_t> SegmentChecksums(const EmbeddingPartition& partition, const ShardInfo& shard);

}  // namespace weft
