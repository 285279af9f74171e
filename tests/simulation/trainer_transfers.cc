// How the trainer moves partitions: PartitionTransfer and ReportingPartitionClient in events.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/partition_server/partition_shards.h"
#include "tests/simulation/trainer_ask.h"
#include "tests/simulation/trainer_process.h"

namespace weft::simulation {
namespace {

constexpr Duration kTimeout = Seconds(3);

bool MayMend(const absl::Status& status) {
  return IsTransient(status) || absl::IsResourceExhausted(status);
}

// What may mend first, then what is a statement.
void Consider(const absl::Status& status, absl::Status* failure) {
  if (failure->ok() || (MayMend(status) && !MayMend(*failure))) *failure = status;
}

BlobMessage BlobOf(const EmbeddingPartition& partition, const ShardInfo& shard) {
  BlobMessage blob;
  blob.checksums = SegmentChecksums(partition, shard);
  blob.info = {shard.size_bytes, BlobChecksum(shard.size_bytes, blob.checksums)};
  for (int64_t i = 0; i < NumSegments(shard.size_bytes); ++i) {
    std::string& segment = blob.segments.emplace_back();
    const int64_t bytes = SegmentBytes(shard.size_bytes, i);
    for (const absl::string_view piece : PiecesOf(partition, shard, i * kSegmentBytes, bytes)) {
      segment.append(piece.data(), piece.size());
    }
  }
  return blob;
}

// Errors: DataLoss.
absl::Status Take(const BlobMessage& blob, const ShardInfo& shard, EmbeddingPartition* partition) {
  if (blob.info != BlobInfo{shard.size_bytes, shard.xxh3}) {
    return absl::DataLossError("another blob");
  }
  for (size_t i = 0; i < blob.segments.size(); ++i) {
    const std::string& segment = blob.segments[i];
    if (SegmentChecksum({segment}) != blob.checksums[i]) return absl::DataLossError("damaged");
    size_t offset = 0;
    for (const absl::Span<char> piece :
         MutablePiecesOf(partition, shard, static_cast<int64_t>(i) * kSegmentBytes,
                         static_cast<int64_t>(segment.size()))) {
      std::memcpy(piece.data(), segment.data() + offset, piece.size());
      offset += piece.size();
    }
  }
  return absl::OkStatus();
}

}  // namespace

// One partition on its way, shard by shard, place by place.
struct TrainerProcess::Transfer {
  PartitionVersion version;
  Table table;
  VersionInfo where;
  size_t shard = 0;
  size_t place = 0;
  absl::Status failure;
  Reply<Table> done;                                     // of a read
  std::function<void(const VersionInfo& where)> stored;  // of a store
};

void TrainerProcess::Read(const SessionPtr& session, const PartitionVersion& version,
                          Reply<Table> done) {
  const auto where = places_->Find(version);
  if (session->ended) return done(absl::AbortedError("the session has ended"));
  if (!where.ok()) return done(where.status());
  const auto read = std::make_shared<Transfer>();
  read->version = version;
  read->table = std::make_shared<EmbeddingPartition>(graph_->rows, kDimension);
  read->where = *where;
  read->done = std::move(done);
  ReadShard(session, read);
}

void TrainerProcess::ReadShard(const SessionPtr& session, const TransferPtr& read) {
  if (session != session_) return;
  if (session->ended) return read->done(absl::AbortedError("the session has ended"));
  if (read->shard == read->where.shards.size()) {
    ++progress_;
    return read->done(read->table);
  }
  const ShardInfo& shard = read->where.shards[read->shard];
  if (read->place == shard.places.size()) return ReadFailed(session, read);
  const Place place = shard.places[read->place];
  const std::optional<ServerInfo> server = places_->Server(place.store_id);
  const bool known =
      server.has_value() && (place.incarnation == 0 || place.incarnation == server->incarnation);
  if (!known) {
    return ReadElsewhere(session, read, absl::UnavailableError("the place is not known"));
  }
  PartitionProcess* const store = addresses_->partitions.at(server->address);
  RunContext context = fence_->known();
  context.generation.reset();
  const ShardName name = {read->version, shard.shard};
  Call<Told<BlobMessage>>(
      store, kTimeout,
      [=](const Reply<Told<BlobMessage>>& reply) { store->Get(context, name, reply); },
      [=, this](const absl::StatusOr<Told<BlobMessage>>& told) {
        if (session != session_) return;
        absl::Status status = told.status();
        if (status.ok()) status = fence_->Check(told->context);
        if (status.ok()) {
          status = Take(told->answer, read->where.shards[read->shard], read->table.get());
        }
        if (absl::IsAborted(status)) return read->done(status);
        if (!status.ok()) return ReadElsewhere(session, read, status);
        ++read->shard;
        read->place = 0;
        read->failure = absl::OkStatus();
        ReadShard(session, read);
      });
}

void TrainerProcess::ReadElsewhere(const SessionPtr& session, const TransferPtr& read,
                                   const absl::Status& why) {
  Consider(why, &read->failure);
  ++read->place;
  ReadShard(session, read);
}

void TrainerProcess::ReadFailed(const SessionPtr& session, const TransferPtr& read) {
  const absl::Status why = std::exchange(read->failure, absl::OkStatus());
  read->place = 0;
  Log(absl::StrCat("cannot read ", ToString(read->version), ": ", std::string(why.message())));
  if (why.ok() || MayMend(why)) {
    return Retry([=, this] {
      if (session == session_) ReadShard(session, read);
    });
  }
  // What all places say is final for them, not for the version.
  const std::optional<Token> grant = places_->GrantFrom(read->version);
  if (!grant.has_value()) return read->done(why);
  const auto where = places_->Find(read->version);
  if (!where.ok()) return read->done(absl::AbortedError("the session has ended"));
  ReportAll(session, *grant, read, *where, 0);
}

void TrainerProcess::ReportAll(const SessionPtr& session, Token grant, const TransferPtr& read,
                               const VersionInfo& where, size_t index) {
  std::vector<std::pair<uint32_t, Place>> all;
  for (const ShardInfo& shard : where.shards) {
    for (const Place& place : shard.places) all.emplace_back(shard.shard, place);
  }
  if (index == all.size()) {
    return Retry([=, this] {
      if (session == session_) Read(session, read->version, read->done);
    });
  }
  const auto [shard, place] = all[index];
  Ask<std::vector<Place>>(
      session, Duration{},
      [id = session->incarnation, grant, name = ShardName{read->version, shard}, place = place](
          RunCoordinator* run, bool) {
        return std::optional(run->ReportUnreadable(id, grant, name, place));
      },
      [=, this, shard = shard](const absl::StatusOr<std::vector<Place>>& left) {
        if (!left.ok()) return read->done(left.status());
        if (!left->empty()) places_->SetPlaces(read->version, shard, *left);
        ReportAll(session, grant, read, where, index + 1);
      });
}

void TrainerProcess::Store(const SessionPtr& session, const JobPtr& job, size_t index) {
  if (session != session_) return;
  if (index == job->sources.size()) return Release(session, job);
  const auto& [key, table] = job->sources[index];
  const auto store = std::make_shared<Transfer>();
  store->version = {key, job->token};
  store->table = table;
  store->where = {store->version, CutInShards(table->count(), kDimension, options_.shard_bytes)};
  store->stored = [=, this](const VersionInfo& where) {
    ++progress_;
    places_->SetStored(where);
    Store(session, job, index + 1);
  };
  StoreShard(session, job, store);
}

void TrainerProcess::StoreShard(const SessionPtr& session, const JobPtr& job,
                                const TransferPtr& store) {
  if (session != session_) return;
  if (session->ended) return Lost(session);
  const auto next_shard = [=, this] {
    ++store->shard;
    store->place = 0;
    store->failure = absl::OkStatus();
    if (store->shard == store->where.shards.size()) return store->stored(store->where);
    StoreShard(session, job, store);
  };
  const auto plan = places_->PlanFor(job->token);
  if (absl::IsAborted(plan.status())) return Lost(session);
  ShardInfo& shard = store->where.shards[store->shard];
  const bool over = !plan.ok() || store->place >= plan->servers.size();
  if (over || shard.places.size() >= static_cast<size_t>(plan->replicas)) {
    // Too few are for the release to judge.
    if (!shard.places.empty()) return next_shard();
    store->place = 0;
    return Retry([=, this] { StoreShard(session, job, store); });
  }
  const size_t turn = (shard.shard + store->place) % plan->servers.size();
  PartitionProcess* const process = addresses_->partitions.at(plan->servers[turn].address);
  const BlobMessage blob = BlobOf(*store->table, shard);
  shard.xxh3 = blob.info.checksum;
  RunContext context = fence_->known();
  context.generation.reset();
  const ShardName name = {store->version, shard.shard};
  Call<Told<Place>>(
      process, kTimeout,
      [=](const Reply<Told<Place>>& reply) { process->Put(context, name, blob, reply); },
      [=, this](const absl::StatusOr<Told<Place>>& told) {
        if (session != session_) return;
        absl::Status status = told.status();
        if (status.ok()) status = fence_->Check(told->context);
        if (absl::IsAborted(status)) return Lost(session);
        if (absl::IsAlreadyExists(status)) {
          world_->Fail(absl::StrCat("one name, two contents: ", std::string(status.message())));
          return;
        }
        ShardInfo& stored = store->where.shards[store->shard];
        if (status.ok()) {
          const bool known = std::ranges::any_of(stored.places, [&](const Place& other) {
            return other.store_id == told->answer.store_id;
          });
          if (!known) stored.places.push_back(told->answer);
        } else {
          Log(absl::StrCat("cannot store: ", std::string(status.message())));
        }
        ++store->place;
        StoreShard(session, job, store);
      });
}

void TrainerProcess::Release(const SessionPtr& session, const JobPtr& job) {
  ReleaseRequest request;
  request.token = job->token;
  request.buckets = job->buckets;
  for (const auto& [key, table] : job->sources) request.stored.push_back(key);
  request.places = places_->Stored(job->token);
  Ask<ReleaseResult>(
      session, Duration{},
      [id = session->incarnation, request](RunCoordinator* run, bool) {
        return std::optional(run->Release(id, request));
      },
      [=, this](const absl::StatusOr<ReleaseResult>& released) {
        if (absl::IsFailedPrecondition(released.status())) {
          return Retry([=, this] { Store(session, job, 0); });
        }
        if (absl::IsAborted(released.status())) return Lost(session);
        if (!released.ok()) {
          return Exit(absl::StrCat("cannot release: ", std::string(released.status().message())));
        }
        Log(absl::StrCat("has released ", job->token));
        ++figures_.releases;
        session->tokens.erase(job->token);
        places_->DropGrant(job->token);
        storing_ = nullptr;
        if (const Then then = std::exchange(when_stored_, nullptr)) then();
      });
}

}  // namespace weft::simulation
