#include "services/partition_server/partition_shards.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/partition_server/blob_format.h"

namespace weft {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

// Calls `add(first float, bytes)` for the vectors' and the sums' part of a range of a shard.
template <typename T, typename Add>
void ForEachPiece(T* embeddings, T* sums, int64_t dimension, const ShardInfo& shard, int64_t begin,
                  int64_t bytes, Add add) {
  WEFT_CHECK(begin >= 0 && bytes >= 0 && begin <= shard.size_bytes - bytes);
  const int64_t vector_bytes = shard.num_rows * dimension * kFloat;
  const int64_t in_vectors = std::clamp(vector_bytes - begin, int64_t{0}, bytes);
  if (in_vectors > 0) add(embeddings + shard.first_row * dimension, begin, in_vectors);
  if (bytes > in_vectors) {
    add(sums + shard.first_row, begin + in_vectors - vector_bytes, bytes - in_vectors);
  }
}

}  // namespace

int64_t ShardBytes(int64_t num_rows, int64_t dimension) {
  return num_rows * (dimension + 1) * kFloat;
}

std::vector<ShardInfo> CutInShards(int64_t count, int64_t dimension, int64_t shard_bytes) {
  const int64_t rows_at_most = std::max(int64_t{1}, shard_bytes / ShardBytes(1, dimension));
  const int64_t shards = std::max(int64_t{1}, (count + rows_at_most - 1) / rows_at_most);
  const int64_t rows = (count + shards - 1) / shards;
  std::vector<ShardInfo> result;
  for (int64_t first = 0; result.empty() || first < count; first += rows) {
    ShardInfo shard;
    shard.shard = static_cast<uint32_t>(result.size());
    shard.first_row = first;
    shard.num_rows = std::min(rows, count - first);
    shard.size_bytes = ShardBytes(shard.num_rows, dimension);
    result.push_back(std::move(shard));
  }
  return result;
}

absl::Status CheckShards(const VersionInfo& version, int64_t count, int64_t dimension) {
  int64_t next_row = 0;
  for (size_t i = 0; i < version.shards.size(); ++i) {
    const ShardInfo& shard = version.shards[i];
    if (shard.shard != i || shard.first_row != next_row || shard.num_rows < 0 ||
        shard.num_rows > count - next_row ||
        shard.size_bytes != ShardBytes(shard.num_rows, dimension)) {
      return absl::FailedPreconditionError(
          absl::StrCat(ToString(version.version), ": shard ", shard.shard, " (", shard.num_rows,
                       " rows from ", shard.first_row, ", ", shard.size_bytes,
                       " bytes) does not fit the ", count, " x ", dimension, " values expected"));
    }
    next_row += shard.num_rows;
  }
  if (version.shards.empty() || next_row != count) {
    return absl::FailedPreconditionError(absl::StrCat(ToString(version.version), ": has ", next_row,
                                                      " rows, not the ", count, " expected"));
  }
  return absl::OkStatus();
}

BytePieces PiecesOf(const EmbeddingPartition& partition, const ShardInfo& shard, int64_t begin,
                    int64_t bytes) {
  BytePieces pieces;
  ForEachPiece(partition.embeddings.data(), partition.adagrad_sums.data(), partition.dimension(),
               shard, begin, bytes, [&](const float* base, int64_t offset, int64_t size) {
                 pieces.emplace_back(reinterpret_cast<const char*>(base) + offset,
                                     static_cast<size_t>(size));
               });
  return pieces;
}

MutableBytePieces MutablePiecesOf(EmbeddingPartition* partition, const ShardInfo& shard,
                                  int64_t begin, int64_t bytes) {
  MutableBytePieces pieces;
  ForEachPiece(partition->embeddings.data(), partition->adagrad_sums.data(), partition->dimension(),
               shard, begin, bytes, [&](float* base, int64_t offset, int64_t size) {
                 pieces.emplace_back(reinterpret_cast<char*>(base) + offset,
                                     static_cast<size_t>(size));
               });
  return pieces;
}

std::vector<uint64_t> SegmentChecksums(const EmbeddingPartition& partition,
                                       const ShardInfo& shard) {
  std::vector<uint64_t> checksums;
  const int64_t segments = NumSegments(shard.size_bytes);
  checksums.reserve(static_cast<size_t>(segments));
  for (int64_t i = 0; i < segments; ++i) {
    checksums.push_back(SegmentChecksum(
        PiecesOf(partition, shard, i * kSegmentBytes, SegmentBytes(shard.size_bytes, i))));
  }
  return checksums;
}

}  // namespace weft
