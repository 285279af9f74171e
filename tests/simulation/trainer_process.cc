#include "tests/simulation/trainer_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/trainer_ask.h"

namespace weft::simulation {
namespace {

struct Nothing {};

absl::StatusOr<Nothing> Done(const absl::Status& status) {
  if (!status.ok()) return status;
  return Nothing();
}

}  // namespace

TrainerProcess::TrainerProcess(World* world, std::string name, double clock_rate,
                               const Graph* graph, const Addresses* addresses,
                               const Options& options)
    : Process(world, std::move(name), clock_rate),
      graph_(graph),
      addresses_(addresses),
      options_(options) {
  figures_.trained.resize(graph->buckets.size());
}

absl::Status TrainerProcess::Begin() {
  fence_ = std::make_unique<RunFence>();
  places_ = std::make_unique<PlaceDirectory>();
  stop_ = false;
  live_ = std::make_unique<SharedState>(MakeCounts(graph_->buckets.size()));
  live_->TrackChanges();
  parameters_ = nullptr;
  Register();
  return absl::OkStatus();
}

void TrainerProcess::End() {
  session_ = nullptr;
  if (exchange_ != nullptr) exchange_->End();
  exchange_ = nullptr;
  training_.clear();
  bases_.clear();
  named_.clear();
  storing_ = nullptr;
  when_stored_ = nullptr;
}

// --- Sessions ---

void TrainerProcess::Register() {
  const auto session = std::make_shared<Session>();
  session->incarnation = world_->NewId();
  session->context.run_id = fence_->known().run_id;
  session_ = session;
  ++figures_.sessions;
  Registration registration;
  registration.incarnation = session->incarnation;
  registration.name = name();
  Ask<ServerList>(
      session, Duration{},
      [registration](RunCoordinator* run, bool) -> std::optional<absl::StatusOr<ServerList>> {
        const auto name = run->Register(registration);
        if (!name.ok()) return name.status();
        return run->servers();
      },
      [=, this](const absl::StatusOr<ServerList>& servers) {
        if (absl::IsAborted(servers.status())) return Register();
        if (!servers.ok()) return Exit(std::string(servers.status().message()));
        places_->Clear();
        places_->SetServers(*servers);
        HeartbeatLater(session);
        AwaitPrepared(session);
      });
}

void TrainerProcess::HeartbeatLater(const SessionPtr& session) {
  After(options_.lease / 4, [=, this] {
    if (session != session_ || session->ended) return;
    Heartbeat(session, [](const auto&) {});
    HeartbeatLater(session);
  });
}

void TrainerProcess::Heartbeat(const SessionPtr& session, Reply<RunPhase> done) {
  struct Beat {
    std::vector<Token> ended;
    RunPhase phase;
    ServerList servers;
  };
  LockProcess* const lock = addresses_->lock;
  const std::vector<Token> tokens(session->tokens.begin(), session->tokens.end());
  const auto serve = [lock, tokens, context = session->context, id = session->incarnation,
                      progress = progress_](const Reply<Told<Beat>>& reply) {
    lock->Serve<Beat>(
        context, Duration{},
        [=](RunCoordinator* run, bool) -> std::optional<absl::StatusOr<Beat>> {
          const auto ended = run->Heartbeat(id, tokens, progress);
          if (!ended.ok()) return ended.status();
          return Beat{*ended, run->phase(), run->servers()};
        },
        reply);
  };
  Call<Told<Beat>>(lock, options_.lease / 4, serve,
                   [=, this](const absl::StatusOr<Told<Beat>>& told) {
                     if (session != session_) return;
                     absl::Status status = told.status();
                     if (status.ok()) {
                       status = fence_->Check(told->context);
                       if (absl::IsAborted(status)) status = absl::UnavailableError("old");
                     }
                     if (absl::IsAborted(status) || absl::IsFailedPrecondition(status)) {
                       session->ended = true;
                       places_->Clear();
                     }
                     if (!status.ok()) return done(status);
                     places_->SetServers(told->answer.servers);
                     for (const Token token : told->answer.ended) {
                       places_->DropGrant(token);
                       session->tokens.erase(token);
                     }
                     done(told->answer.phase);
                   });
}

void TrainerProcess::AwaitPrepared(const SessionPtr& session) {
  Heartbeat(session, [=, this](const absl::StatusOr<RunPhase>& phase) {
    if (session->ended) return Lost(session);
    const bool prepared =
        phase.ok() && *phase != RunPhase::kPreparing && *phase != RunPhase::kRewinding;
    if (!prepared)
      return After(Milliseconds(200), [=, this] {
        if (session == session_) AwaitPrepared(session);
      });
    JoinParameters(session);
  });
}

void TrainerProcess::JoinParameters(const SessionPtr& session) {
  std::vector<ParamProcess*> servers;
  for (const ServerInfo& server : places_->servers().param_servers) {
    servers.push_back(addresses_->params.at(server.address));
  }
  const auto num_servers = static_cast<int>(servers.size());
  if (num_servers > 0 && (parameters_ == nullptr || parameters_->num_servers() != num_servers)) {
    // Small messages: pages and pushes in parts.
    parameters_ = std::make_unique<ParameterSync>(
        live_.get(), ParameterSync::Options{num_servers, options_.message_bytes});
  }
  exchange_ = std::make_shared<Exchange>(this, fence_.get(), parameters_.get(),
                                         ParamCaller{session->context, session->incarnation},
                                         std::move(servers), [session] { return session->ended; });
  exchange_->Join([=, this](const absl::Status& status) {
    if (session != session_) return;
    if (absl::IsAborted(status)) return Lost(session);
    if (!status.ok()) return Exit(std::string(status.message()));
    Acquire(session);
  });
}

void TrainerProcess::Lost(const SessionPtr& session) {
  if (session != session_) return;
  Log("session is over");
  if (exchange_ != nullptr) exchange_->End();
  named_.clear();
  if (options_.names_trained_copies) {
    for (auto& [key, table] : training_) {
      named_[key] = std::make_shared<Named>(Named{bases_[key], table, nullptr});
    }
  }
  training_.clear();
  storing_ = nullptr;
  when_stored_ = nullptr;
  Leave(session, [this] { Register(); });
}

void TrainerProcess::Leave(const SessionPtr& session, Then then) {
  // What still runs for the session ends here.
  session_ = std::make_shared<Session>(*session);
  places_->Clear();
  Ask<Nothing>(
      session_, Duration{},
      [id = session->incarnation](RunCoordinator* run, bool) {
        return std::optional(Done(run->Leave(id)));
      },
      [then = std::move(then)](const auto&) { then(); });
}

// --- Grants ---

void TrainerProcess::Acquire(const SessionPtr& session) {
  if (stop_) return FinishUp(session);
  AcquireRequest request = {session->number, {}, absl::ZeroDuration()};
  for (const auto& [key, copy] : named_) request.resident.push_back({key, copy->token});
  Ask<AcquireResult>(
      session, storing_ != nullptr ? Seconds(1) : Seconds(2),
      [request, id = session->incarnation](
          RunCoordinator* run, bool last) -> std::optional<absl::StatusOr<AcquireResult>> {
        auto result = run->Acquire(id, request);
        if (result.ok() && !result->grant.has_value() && !result->run_done && !last) {
          return std::nullopt;
        }
        return result;
      },
      [=, this](const absl::StatusOr<AcquireResult>& result) {
        if (absl::IsAborted(result.status())) return Lost(session);
        if (!result.ok()) return Exit(std::string(result.status().message()));
        ++progress_;
        if (result->grant.has_value()) {
          const auto grant = std::make_shared<const Grant>(*result->grant);
          Log(absl::StrCat("is granted ", grant->token));
          ++session->number;
          session->tokens.insert(grant->token);
          std::vector<PartitionVersion> bases;
          for (const GrantedPartition& p : grant->partitions) bases.push_back({p.key, p.base});
          places_->AddGrant(grant->token, grant->places, grant->store_at, grant->replicas, bases);
          Load(session, grant, 0);
        } else if (result->run_done) {
          stop_ = true;
          finished_ = true;
          FinishUp(session);
        } else {
          Acquire(session);
        }
      });
}

TrainerProcess::Table TrainerProcess::Writable(PartitionKey key, Table copy) {
  if (storing_ == nullptr || options_.trains_what_is_stored) return copy;
  for (const auto& [stored, table] : storing_->sources) {
    if (stored == key && table == copy) return std::make_shared<EmbeddingPartition>(copy->Clone());
  }
  return copy;
}

void TrainerProcess::Load(const SessionPtr& session, const GrantPtr& grant, size_t index) {
  if (index == 0) {
    std::set<PartitionKey> needed;
    for (const GrantedPartition& p : grant->partitions) needed.insert(p.key);
    std::vector<PartitionKey> idle;
    for (const auto& [key, copy] : named_) {
      if (!needed.contains(key)) idle.push_back(key);
    }
    for (size_t i = 0; i + options_.resident < idle.size() + needed.size() && i < idle.size();
         ++i) {
      named_.erase(idle[i]);
    }
  }
  if (index == grant->partitions.size()) {
    Prefetch(session, *grant);
    return Train(session, grant, 0, {});
  }
  const GrantedPartition& wanted = grant->partitions[index];
  std::shared_ptr<Named> named;
  if (auto node = named_.extract(wanted.key)) named = std::move(node.mapped());
  if (wanted.source == GrantedPartition::Source::kInitialise) {
    return Loaded(session, grant, index,
                  std::make_shared<EmbeddingPartition>(graph_->rows, kDimension));
  }
  const auto read = [=, this, version = PartitionVersion{wanted.key, wanted.base}] {
    Read(session, version, [=, this](const absl::StatusOr<Table>& table) {
      if (absl::IsAborted(table.status())) return Lost(session);
      if (!table.ok()) return Exit(std::string(table.status().message()));
      Loaded(session, grant, index, *table);
    });
  };
  if (named != nullptr && named->token == wanted.base) {
    if (named->data != nullptr) {
      return Loaded(session, grant, index, Writable(wanted.key, named->data));
    }
    if (named->when_read == nullptr) {
      named->when_read = [=, this, key = wanted.key](Table table) {
        if (session != session_) return;
        if (table == nullptr) return read();
        Loaded(session, grant, index, Writable(key, std::move(table)));
      };
      return;
    }
  }
  if (storing_ != nullptr && storing_->token == wanted.base) {
    for (const auto& [key, table] : storing_->sources) {
      if (key == wanted.key) return Loaded(session, grant, index, Writable(key, table));
    }
  }
  read();
}

void TrainerProcess::Loaded(const SessionPtr& session, const GrantPtr& grant, size_t index,
                            Table table) {
  training_[grant->partitions[index].key] = std::move(table);
  bases_[grant->partitions[index].key] = grant->partitions[index].base;
  Load(session, grant, index + 1);
}

void TrainerProcess::Prefetch(const SessionPtr& session, const Grant& grant) {
  for (const PartitionVersion& version : grant.hint) {
    if (version.token == kInitialToken || training_.contains(version.key)) continue;
    std::shared_ptr<Named>& copy = named_[version.key];
    if (copy != nullptr && copy->token == version.token) continue;
    copy = std::make_shared<Named>();
    copy->token = version.token;
    if (storing_ != nullptr && storing_->token == version.token) {
      for (const auto& [key, table] : storing_->sources) {
        if (key == version.key) copy->data = table;
      }
    }
    if (copy->data != nullptr) continue;
    Read(session, version, [named = copy](const absl::StatusOr<Table>& table) {
      if (table.ok()) named->data = *table;
      const auto waits = std::exchange(named->when_read, [](const Table&) {});
      if (waits != nullptr) waits(named->data);
    });
  }
}

void TrainerProcess::Train(const SessionPtr& session, const GrantPtr& grant, size_t index,
                           std::vector<BucketStats> trained) {
  if (session != session_) return;
  if (index == grant->buckets.size()) return Finish(session, grant, std::move(trained));
  if (stop_) {
    // Given back at once, so that others need not wait for the session's end.
    training_.clear();
    session->tokens.erase(grant->token);
    places_->DropGrant(grant->token);
    Ask<Nothing>(
        session, Duration{},
        [id = session->incarnation, token = grant->token](RunCoordinator* run, bool) {
          return std::optional(Done(run->Abandon(id, token)));
        },
        [=, this](const auto&) { FinishUp(session); });
    return;
  }
  exchange_->BeginPass(grant->position.pass);
  const Bucket bucket = grant->buckets[index].bucket;
  const size_t edges = graph_->edges(bucket).size();
  const auto train = [=, this](size_t begin, size_t end) {
    graph_->Train(bucket, begin, end, training_.at({0, bucket.lhs}).get(),
                  bucket.lhs == bucket.rhs ? training_.at({0, bucket.lhs}).get()
                                           : training_.at({0, bucket.rhs}).get());
    figures_.trained_edges += static_cast<int64_t>(end - begin);
    figures_.trained[graph_->Index(bucket)] += static_cast<int64_t>(end - begin);
    Parameter& counts = live_->parameters.all()[0];
    const auto row = static_cast<int64_t>(graph_->Index(bucket));
    counts.values.row(row)[0] += static_cast<float>(end - begin);
    MarkChanged(counts.changed.data(), row);
    ++progress_;
  };
  const Duration half = world_->Between(Milliseconds(50), Milliseconds(900));
  After(half, [=, this, trained = std::move(trained)] {
    if (session != session_) return;
    train(0, edges / 2);
    After(half, [=, this] {
      if (session != session_) return;
      train(edges / 2, edges);
      std::vector<BucketStats> more = trained;
      BucketStats& stats = more.emplace_back();
      stats.bucket = bucket;
      stats.trained_edges = static_cast<int64_t>(edges);
      stats.train_seconds = 1;
      stats.train.count = stats.trained_edges;
      Train(session, grant, index + 1, std::move(more));
    });
  });
}

void TrainerProcess::Finish(const SessionPtr& session, const GrantPtr& grant,
                            std::vector<BucketStats> trained) {
  if (session != session_) return;
  if (storing_ != nullptr) {
    when_stored_ = [=, this] { Finish(session, grant, trained); };
    return;
  }
  const auto job = std::make_shared<Job>();
  job->token = grant->token;
  job->buckets = std::move(trained);
  for (auto& [key, table] : training_) {
    named_[key] = std::make_shared<Named>(Named{grant->token, table, nullptr});
    job->sources.emplace_back(key, std::move(table));
  }
  training_.clear();
  storing_ = job;
  Flush(session, job);
  Acquire(session);
}

void TrainerProcess::Flush(const SessionPtr& session, const JobPtr& job) {
  if (options_.releases_unflushed) return Store(session, job, 0);
  exchange_->Flush([=, this](const absl::Status& status) {
    if (session != session_) return;
    if (absl::IsAborted(status)) return Lost(session);
    if (!status.ok()) return Exit(std::string(status.message()));
    Store(session, job, 0);
  });
}

void TrainerProcess::FinishUp(const SessionPtr& session) {
  if (session != session_) return;
  if (storing_ != nullptr) {
    when_stored_ = [=, this] { FinishUp(session); };
    return;
  }
  Leave(session, [this] {
    restarts = !finished_;
    Exit(finished_ ? "the run is done" : "terminated");
  });
}

}  // namespace weft::simulation
