#include "services/partition_server/partition_transfer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/mutex.h"
#include "services/common/status_macros.h"
#include "services/partition_server/blob_format.h"
#include "services/partition_server/partition_shards.h"

namespace weft {
namespace {

absl::Status At(const ServerInfo& server, const absl::Status& status) {
  return Annotate(status, absl::StrCat(RoleName(ServerRole::kPartition), " at ", server.address));
}

// A full store may have room again, and another may come.
bool MayMend(const absl::Status& status) {
  return IsTransient(status) || absl::IsResourceExhausted(status);
}

// What says most about why nothing worked: what may mend first, then damage, then absence.
void Consider(const absl::Status& status, absl::Status* failure) {
  const auto weight = [](const absl::Status& s) {
    if (s.ok()) return 0;
    if (MayMend(s)) return 3;
    return absl::IsNotFound(s) ? 1 : 2;
  };
  if (weight(status) > weight(*failure)) *failure = status;
}

}  // namespace

absl::Status PartitionTransfer::ForEachShard(
    std::vector<ShardInfo>* shards, const std::function<absl::Status(ShardInfo*)>& move) const {
  Mutex mu;
  absl::Status first_error;
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto work = [&] {
    for (size_t i = next++; i < shards->size() && !failed; i = next++) {
      absl::Status status = move(&(*shards)[i]);
      if (status.ok()) continue;
      failed = true;
      MutexLock lock(&mu);
      first_error.Update(std::move(status));
    }
  };
  const size_t streams = std::min(shards->size(), static_cast<size_t>(options_.streams));
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < streams; ++i) threads.emplace_back(work);
    work();
  }
  return first_error;
}

absl::Status PartitionTransfer::UntilPatienceIsOver(
    const std::function<absl::Status()>& attempt) const {
  static std::atomic<uint64_t> seed = 0;
  Backoff backoff(options_.retry, ++seed);
  for (;;) {
    const absl::Status status = attempt();
    if (status.ok() || !MayMend(status)) return status;
    const auto now = std::chrono::steady_clock::now();
    const std::optional<absl::Duration> delay = backoff.Next(now);
    if (!delay.has_value()) {
      return Annotate(status, absl::StrCat("for ", absl::FormatDuration(backoff.Waited(now))));
    }
    if (!cancel_->WaitFor(*delay)) return absl::CancelledError("cancelled");
  }
}

absl::Status PartitionTransfer::Read(const VersionInfo& version, EmbeddingPartition* out,
                                     const StillWanted& still_wanted) const {
  WEFT_RETURN_IF_ERROR(CheckShards(version, out->count(), out->dimension()));
  std::vector<ShardInfo> shards = version.shards;
  return ForEachShard(&shards, [&](const ShardInfo* shard) {
    const auto target = [&](int64_t begin, int64_t bytes) {
      return MutablePiecesOf(out, *shard, begin, bytes);
    };
    return UntilPatienceIsOver([&] {
      if (still_wanted != nullptr) WEFT_RETURN_IF_ERROR(still_wanted());
      return ReadOnce({version.version, shard->shard}, *shard, target);
    });
  });
}

absl::Status PartitionTransfer::ReadShard(const PartitionVersion& version, const ShardInfo& shard,
                                          absl::Span<char> out,
                                          const StillWanted& still_wanted) const {
  WEFT_CHECK(static_cast<int64_t>(out.size()) == shard.size_bytes);
  const auto target = [&](int64_t begin, int64_t bytes) {
    return MutableBytePieces{out.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes))};
  };
  return UntilPatienceIsOver([&] {
    if (still_wanted != nullptr) WEFT_RETURN_IF_ERROR(still_wanted());
    return ReadOnce({version, shard.shard}, shard, target);
  });
}

absl::Status PartitionTransfer::ReadOnce(const ShardName& name, const ShardInfo& shard,
                                         Target target) const {
  const BlobInfo info = {shard.size_bytes, shard.xxh3};
  const auto copy = [&](int64_t index, uint64_t checksum,
                        absl::Span<const absl::string_view> pieces) -> absl::Status {
    const int64_t begin = index * kSegmentBytes;
    const int64_t bytes = SegmentBytes(info.bytes, index);
    const MutableBytePieces table = target(begin, bytes);
    CopyingChecksum copied;
    size_t piece = 0;
    size_t offset = 0;  // in the piece of the table
    for (absl::string_view rest : pieces) {
      while (!rest.empty() && piece < table.size()) {
        const size_t count = std::min(rest.size(), table[piece].size() - offset);
        copied.Copy(rest.data(), count, table[piece].data() + offset);
        rest.remove_prefix(count);
        offset += count;
        if (offset < table[piece].size()) continue;
        ++piece;
        offset = 0;
      }
      if (!rest.empty()) {
        return absl::InternalError(absl::StrCat(ToString(name), ": segment ", index, " is long"));
      }
    }
    if (piece != table.size() || copied.Get() != checksum) {
      return absl::DataLossError(
          absl::StrCat(ToString(name), ": checksum mismatch in segment ", index));
    }
    return absl::OkStatus();
  };
  absl::Status failure;
  for (const Place& place : shard.places) {
    const std::optional<ServerInfo> server = find_server_(place);
    if (!server.has_value()) continue;
    const absl::Status status = blobs_->Get(server->address, name, info, copy);
    if (status.ok() || absl::IsAborted(status) || absl::IsCancelled(status)) return status;
    const bool statement = absl::IsNotFound(status) || absl::IsDataLoss(status);
    if (statement && options_.on_unreadable) options_.on_unreadable(name, place, status);
    Consider(At(*server, status), &failure);
  }
  if (!failure.ok()) return failure;
  return absl::UnavailableError(
      absl::StrCat(ToString(name), ": none of its ", shard.places.size(), " places is known"));
}

absl::StatusOr<VersionInfo> PartitionTransfer::Store(const PartitionVersion& version,
                                                     const EmbeddingPartition& partition,
                                                     const FindTargets& find_targets) const {
  VersionInfo stored = {
      version, CutInShards(partition.count(), partition.dimension(), options_.shard_bytes)};
  WEFT_RETURN_IF_ERROR(ForEachShard(&stored.shards, [&](ShardInfo* shard) {
    const std::vector<uint64_t> checksums = SegmentChecksums(partition, *shard);
    const auto source = [&](int64_t index) {
      return PiecesOf(partition, *shard, index * kSegmentBytes,
                      SegmentBytes(shard->size_bytes, index));
    };
    return UntilPatienceIsOver([&] {
      return StoreOnce({version, shard->shard}, checksums, source, find_targets, shard);
    });
  }));
  return stored;
}

absl::Status PartitionTransfer::StoreShard(const PartitionVersion& version, absl::string_view bytes,
                                           const FindTargets& find_targets,
                                           ShardInfo* shard) const {
  shard->size_bytes = static_cast<int64_t>(bytes.size());
  const auto segment = [&](int64_t index) {
    return bytes.substr(static_cast<size_t>(index * kSegmentBytes),
                        static_cast<size_t>(SegmentBytes(shard->size_bytes, index)));
  };
  std::vector<uint64_t> checksums;
  for (int64_t i = 0; i < NumSegments(shard->size_bytes); ++i) {
    checksums.push_back(SegmentChecksum({segment(i)}));
  }
  const auto source = [&](int64_t index) { return BytePieces{segment(index)}; };
  return UntilPatienceIsOver([&] {
    return StoreOnce({version, shard->shard}, checksums, source, find_targets, shard);
  });
}

absl::Status PartitionTransfer::StoreOnce(const ShardName& name,
                                          absl::Span<const uint64_t> checksums,
                                          SegmentSource source, const FindTargets& find_targets,
                                          ShardInfo* shard) const {
  const BlobInfo info = {shard->size_bytes, BlobChecksum(shard->size_bytes, checksums)};
  shard->xxh3 = info.checksum;
  shard->places.clear();
  WEFT_ASSIGN_OR_RETURN(const StoreTargets targets, find_targets());
  absl::Status failure;
  // Each shard begins at another store, so that they share the work.
  const size_t stores = targets.servers.size();
  for (size_t i = 0; i < stores; ++i) {
    if (shard->places.size() >= static_cast<size_t>(std::max(1, targets.replicas))) break;
    const ServerInfo& server = targets.servers[(shard->shard + i) % stores];
    const absl::StatusOr<Place> place = blobs_->Put(server.address, name, info, checksums, source);
    if (place.ok()) {
      AddReplica(*place, &shard->places);
      continue;
    }
    // What no other store can mend.
    if (absl::IsAborted(place.status()) || absl::IsAlreadyExists(place.status()) ||
        absl::IsCancelled(place.status())) {
      return place.status();
    }
    Consider(At(server, place.status()), &failure);
  }
  // Too few replicas are for the release to judge: there may be no more live stores.
  if (!shard->places.empty()) return absl::OkStatus();
  if (!failure.ok()) return failure;
  return absl::UnavailableError(
      absl::StrCat(ToString(name), ": no partition server is known to store it at"));
}

}  // namespace weft
