#include "services/lock_server/local_run_recovery.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "services/common/logging.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_codec.h"
#include "services/partition_server/blob_format.h"
#include "services/partition_server/grpc_blob_client.h"

namespace weft {
namespace {

// There may have been lives of the lock server, and of the run, after all that the servers at hand
// have heard of.
constexpr uint64_t kUnseenLives = 1000;

// A server, and what it has heard of lives of the run: not all need have heard of the last ones.
struct Source {
  Source(const std::string& address, ChannelPool* channels)
      : address(address), blobs(channels, &fence, {}) {}

  const std::string address;
  RunFence fence;
  GrpcBlobClient blobs;
};

struct Candidate {
  Source* source = nullptr;
  ShardName name;
  BlobInfo info;
};

absl::StatusOr<RunState> ReadManifest(const Candidate& from) {
  std::string bytes;
  WEFT_RETURN_IF_ERROR(from.source->blobs.Get(
      from.source->address, from.name, from.info,
      [&](int64_t, uint64_t checksum, absl::Span<const absl::string_view> pieces) -> absl::Status {
        if (SegmentChecksum(pieces) != checksum) return absl::DataLossError("checksum mismatch");
        for (const absl::string_view piece : pieces) bytes.append(piece.data(), piece.size());
        return absl::OkStatus();
      }));
  WEFT_ASSIGN_OR_RETURN(RunRecord record, DecodeRecord(bytes));
  RunState* const state = std::get_if<RunState>(&record);
  if (state == nullptr || state->origin != from.name.version.token) {
    return absl::DataLossError("it is no manifest");
  }
  return std::move(*state);
}

}  // namespace

absl::StatusOr<RunState> RecoverRun(const std::vector<std::string>& addresses,
                                    const SecurityOptions& security, const RetryOptions& retry) {
  ChannelPool channels({.connections = 1, .security = security});
  CancelFlag never;
  std::vector<std::unique_ptr<Source>> sources;
  std::vector<Candidate> candidates;
  RunContext known;
  for (const std::string& address : addresses) {
    Source* const source = sources.emplace_back(std::make_unique<Source>(address, &channels)).get();
    const Peer peer = {RoleName(ServerRole::kPartition), address};
    absl::StatusOr<GrpcBlobClient::Manifests> manifests;
    WEFT_RETURN_IF_ERROR(RetryCall(peer, retry, Idempotency::kIdempotent, &never, [&] {
      manifests = source->blobs.ListManifests(address);
      return manifests.status();
    }));
    const RunContext theirs = source->fence.known();
    if (!known.run_id.empty() && theirs.run_id != known.run_id) {
      return absl::FailedPreconditionError(
          absl::StrCat(peer.role, " at ", address, " belongs to run ", theirs.run_id,
                       ", the one at ", addresses.front(), " to run ", known.run_id));
    }
    known.run_id = theirs.run_id;
    known.term = std::max(known.term, theirs.term);
    known.generation = std::max(known.generation, theirs.generation);
    for (auto& [name, info] : *manifests) candidates.push_back({source, name, info});
  }
  std::ranges::stable_sort(candidates, std::greater<>(), [](const Candidate& candidate) {
    return std::pair(candidate.name.version.token, candidate.name.version.key.partition);
  });
  for (const Candidate& candidate : candidates) {
    absl::StatusOr<RunState> state = ReadManifest(candidate);
    if (!state.ok()) {
      LogWarning("manifest cannot be read", {{"token", candidate.name.version.token},
                                             {"address", candidate.source->address},
                                             {"cause", state.status().message()}});
      continue;
    }
    state->term = std::max(state->term, known.term) + kUnseenLives;
    state->generation = std::max(state->generation, known.generation.value_or(0)) + kUnseenLives;
    LogInfo("run recovered", {{"run", state->run_id},
                              {"token", state->origin},
                              {"pass", state->position.pass},
                              {"address", candidate.source->address}});
    return state;
  }
  return absl::NotFoundError(
      absl::StrCat("none of the ", addresses.size(),
                   " partition servers has a manifest of the run that can be read"));
}

}  // namespace weft
