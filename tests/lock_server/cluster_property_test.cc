// Random steps of trainers that die, stores that forget, lost answers, and lock servers that are
// killed: whatever happens, each bucket of each pass is in each current version exactly once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/common/random.h"
#include "tests/lock_server/cluster_fixture.h"
#include "tests/lock_server/random_stores.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_seed.h"

namespace weft {
namespace {

using testing::ClusterRun;
using testing::Content;
using testing::IsOk;
using testing::MakeClusterPlan;
using testing::RandomStores;
using testing::StatusIs;

constexpr int kPartitions = 4;

struct Trainer {
  struct Held {
    Grant grant;
    std::map<PartitionKey, Content> tables;  // trained
  };
  SessionId session = 0;
  uint64_t number = 0;
  std::vector<Held> held;                                    // oldest first
  std::map<PartitionKey, std::pair<Token, Content>> copies;  // bit-equal to that version
};

class World {
 public:
  explicit World(uint64_t seed) : random_(seed, RandomUse::kTest, 7), run_(Plan()) {
    for (Trainer& trainer : trainers_) Reset(&trainer);
    SyncStores();
  }

  static RunPlan Plan() {
    RunPlan plan = MakeClusterPlan(kPartitions, /*param_servers=*/1);
    plan.num_epochs = 1'000'000;
    plan.bucket_edges[0][3] = 0;
    plan.cluster->max_bucket_attempts = 0;
    plan.cluster->checkpoint_interval = std::chrono::seconds(40);
    return plan;
  }

  void Step() {
    Trainer& trainer = trainers_[random_.Below(3)];
    const uint32_t action = random_.Below(1000);
    if (action < 380) {
      Acquire(&trainer);
    } else if (action < 700) {
      StoreAndRelease(&trainer);
    } else if (action < 780) {
      SyncStores();
    } else if (action < 880) {
      PassTime();
    } else if (action < 900) {
      Deliver();
    } else if (action < 920) {
      Abandon(&trainer);
    } else if (action < 930) {
      EXPECT_THAT(run_.coordinator->Leave(trainer.session), IsOk());
      Reset(&trainer);
    } else if (action < 945) {
      Reset(&trainer);  // killed: its session is there until it expires
    } else if (action < 955) {
      KillLockServer();
    } else if (action < 960) {
      stores_.KillMemory();
      SyncStores();
    } else if (action < 962) {
      stores_.LoseParams();
      SyncStores();
    } else {
      Heartbeats();
    }
    Check();
  }

  int64_t passes() const { return passes_; }
  int64_t rewinds() const { return rewinds_; }
  int64_t releases() const { return releases_; }
  int64_t kills() const { return kills_; }

 private:
  bool Chance(uint32_t percent) { return random_.Below(100) < percent; }

  void Reset(Trainer* trainer) {
    *trainer = Trainer();
    trainer->session = ++last_session_;
    run_.Register(trainer->session);
    Remember();
  }

  // Answers leave when they are synced; now and then the process dies first. Then the caller hears
  // nothing and will ask again.
  bool Answered() {
    if (Chance(1)) {
      KillLockServer();
      return false;
    }
    Acknowledge();
    return true;
  }

  void Acquire(Trainer* trainer) {
    AcquireRequest request = {trainer->number + 1, {}, absl::ZeroDuration()};
    for (const auto& [key, copy] : trainer->copies) {
      if (Chance(80)) request.resident.push_back({key, copy.first});
    }
    const auto result = run_.coordinator->Acquire(trainer->session, request);
    if (!Answered()) return;
    if (absl::IsAborted(result.status())) return Reset(trainer);
    ASSERT_THAT(result, IsOk());
    if (!result->grant.has_value()) return;
    if (Chance(10)) {  // the answer is lost; the same call again
      const auto again = run_.coordinator->Acquire(trainer->session, request);
      ASSERT_THAT(again, IsOk());
      ASSERT_EQ(again->grant->token, result->grant->token);
    }
    ++trainer->number;
    const Grant& grant = *result->grant;
    ASSERT_TRUE(tokens_.insert(grant.token).second) << "a token was granted twice";
    Train(trainer, grant);
  }

  void Train(Trainer* trainer, const Grant& grant) {
    Trainer::Held held = {grant, {}};
    for (const GrantedPartition& partition : grant.partitions) {
      Content content;
      if (partition.source == GrantedPartition::Source::kKeep) {
        const auto copy = trainer->copies.find(partition.key);
        ASSERT_NE(copy, trainer->copies.end());
        ASSERT_EQ(copy->second.first, partition.base);
        content = copy->second.second;
      } else if (partition.source == GrantedPartition::Source::kRead) {
        if (!Read(trainer, grant, {partition.key, partition.base}, &content)) {
          EXPECT_THAT(run_.coordinator->Abandon(trainer->session, grant.token), IsOk());
          for (const GrantedPartition& p : grant.partitions) trainer->copies.erase(p.key);
          Acknowledge();
          return;
        }
      }
      for (const GrantedBucket& b : grant.buckets) {
        const PartitionId id = partition.key.partition;
        if (b.bucket.lhs == id || b.bucket.rhs == id) {
          content.insert({grant.position.pass, b.bucket});
        }
      }
      held.tables[partition.key] = content;
      // The finished copy has the new name, until the release is answered.
      trainer->copies[partition.key] = {grant.token, content};
    }
    trainer->held.push_back(std::move(held));
  }

  bool Read(Trainer* trainer, const Grant& grant, const PartitionVersion& version, Content* out) {
    for (const VersionInfo& info : grant.places) {
      if (info.version != version) continue;
      for (const Place& place : info.shards[0].places) {
        if (stores_.Has(place, version)) {
          *out = stores_.content(version);
          return true;
        }
        run_.coordinator->ReportUnreadable(trainer->session, grant.token, {version, 0}, place)
            .IgnoreError();
        Acknowledge();
      }
    }
    return false;
  }

  void StoreAndRelease(Trainer* trainer) {
    if (trainer->held.empty()) return;
    const size_t which = Chance(95) ? 0 : trainer->held.size() - 1;
    const Trainer::Held held = trainer->held[which];
    ReleaseRequest request = testing::ReleaseOf(held.grant);
    for (const auto& [key, content] : held.tables) {
      const PartitionVersion version = {key, held.grant.token};
      const StoreId store = Chance(60) ? RandomStores::kDisk : RandomStores::kMemory;
      const Place place = stores_.Put(store, version, content);
      request.places.push_back({version, {{0, 0, 10, 100, 1, {place}}}});
    }
    if (Chance(10)) late_.push_back({trainer->session, request});
    const auto result = run_.coordinator->Release(trainer->session, request);
    if (!Answered()) return;
    if (absl::IsFailedPrecondition(result.status())) return;  // stored again another time
    if (absl::IsAborted(result.status())) return Reset(trainer);
    ASSERT_THAT(result, IsOk());
    ++releases_;
    trainer->held.erase(trainer->held.begin() + static_cast<long>(which));
    if (Chance(20)) {
      const int64_t before = run_.coordinator->progress().buckets_done;
      const auto again = run_.coordinator->Release(trainer->session, request);
      if (again.ok()) {
        ASSERT_EQ(again->pass_done, result->pass_done);
        ASSERT_EQ(run_.coordinator->progress().buckets_done, before);
      } else {
        ASSERT_TRUE(absl::IsAborted(again.status())) << again.status();
      }
    }
  }

  // A release that was under way for long.
  void Deliver() {
    if (late_.empty()) return;
    const auto [session, request] = late_.front();
    late_.erase(late_.begin());
    // It may be of a live session that has not released yet: then it is the release.
    const auto result = run_.coordinator->Release(session, request);
    Acknowledge();
    if (!result.ok()) return;
    for (Trainer& trainer : trainers_) {
      if (trainer.session != session) continue;
      std::erase_if(trainer.held,
                    [&](const Trainer::Held& held) { return held.grant.token == request.token; });
    }
  }

  void Abandon(Trainer* trainer) {
    if (trainer->held.empty()) return;
    EXPECT_THAT(run_.coordinator->Abandon(trainer->session, trainer->held.back().grant.token),
                IsOk());
    // What was begun is spoiled: its name goes.
    for (const auto& [key, content] : trainer->held.back().tables) trainer->copies.erase(key);
    trainer->held.pop_back();
    Answered();
  }

  void Heartbeats() {
    for (Trainer& trainer : trainers_) {
      std::vector<Token> tokens;
      for (const Trainer::Held& held : trainer.held) tokens.push_back(held.grant.token);
      const auto ended = run_.coordinator->Heartbeat(trainer.session, tokens, ++progress_);
      if (absl::IsAborted(ended.status()) || (ended.ok() && !ended->empty())) Reset(&trainer);
    }
  }

  void PassTime() {
    for (int i = 0; i < 4; ++i) {
      run_.Pass(absl::Seconds(random_.Below(5)));
      if (Chance(90)) Heartbeats();
    }
    Remember();
  }

  void KillLockServer() {
    ++kills_;
    run_.Restart();
    EXPECT_EQ(Digest(), remembered_) << "a restart saw another state than what was acknowledged";
  }

  std::string Digest() const {
    const RunState state = run_.coordinator->state();
    std::string digest =
        absl::StrCat(state.generation, "/", state.position.pass, "/", state.done.size(), "/",
                     state.parameters_ready, "/", state.origin, ";");
    for (const PartitionKey& key : state.versions.keys()) {
      absl::StrAppend(&digest, state.versions.current(key), ",", state.versions.committed(key),
                      ";");
    }
    const std::map<SessionId, SessionRecord> sessions(state.sessions.begin(), state.sessions.end());
    for (const auto& [id, session] : sessions) {
      absl::StrAppend(&digest, id, ":", session.number, ":", session.granted, ":",
                      session.outcomes.size());
      for (const Token token : session.grants) absl::StrAppend(&digest, " ", token);
    }
    for (const auto& [token, manifest] : state.manifests.manifests()) {
      absl::StrAppend(&digest, ";", token, "=", static_cast<int>(manifest.state));
    }
    const std::map<PartitionVersion, PlaceTable::Shards> places(state.places.versions().begin(),
                                                                state.places.versions().end());
    for (const auto& [version, shards] : places) {
      absl::StrAppend(&digest, ";", version.key.partition, "/", version.token);
      for (const Place& place : shards[0].places) {
        absl::StrAppend(&digest, "@", place.store_id, ".", place.incarnation);
      }
    }
    return digest;
  }
  void Remember() { remembered_ = Digest(); }
  void Acknowledge() {
    run_.Sync();
    Remember();
  }

  void SyncStores() {
    stores_.Sync();
    Remember();
  }

  void Check() {
    const RunState state = run_.coordinator->state();
    ASSERT_FALSE(state.failure.has_value()) << state.failure->reason;
    if (state.generation != generation_) {
      ++rewinds_;
      generation_ = state.generation;
    }
    if (state.position.pass > last_pass_) ++passes_;
    last_pass_ = state.position.pass;

    int64_t bytes = 0;
    for (const auto& [version, shards] : state.places.versions()) {
      for (const ShardInfo& shard : shards) {
        bytes += shard.size_bytes * static_cast<int64_t>(shard.places.size());
      }
    }
    ASSERT_EQ(state.places.bytes(), bytes);

    std::map<PartitionId, SessionId> owners;
    for (const auto& [token, grant] : state.grants) {
      ASSERT_TRUE(state.sessions.contains(grant.session));
      for (const GrantRecord::Base& base : grant.bases) {
        const auto [owner, is_new] = owners.emplace(base.key.partition, grant.session);
        ASSERT_EQ(owner->second, grant.session) << "two sessions have one partition";
      }
    }
    std::set<Bucket> done;
    for (const DoneBucket& bucket : state.done) {
      ASSERT_TRUE(done.insert(bucket.stats.bucket).second) << "a bucket was done twice";
    }
    for (const PartitionKey& key : state.versions.keys()) {
      const PartitionVersion current = {key, state.versions.current(key)};
      ASSERT_FALSE(stores_.WasGarbage(current)) << "garbage has become current";
      Content expected;
      for (PartitionId lhs = 0; lhs < kPartitions; ++lhs) {
        for (PartitionId rhs = 0; rhs < kPartitions; ++rhs) {
          const Bucket b = {lhs, rhs};
          const bool uses = lhs == key.partition || rhs == key.partition;
          if (!uses || b == Bucket{0, 3}) continue;  // that one has no edges
          for (int64_t pass = 0; pass < state.position.pass; ++pass) expected.insert({pass, b});
          if (done.contains(b)) expected.insert({state.position.pass, b});
        }
      }
      const Content actual = current.token == kInitialToken ? Content() : stores_.content(current);
      ASSERT_EQ(actual, expected) << "partition " << key.partition << " in pass "
                                  << state.position.pass;
      if (current.token == kInitialToken) continue;
      const PlaceTable::Shards* shards = state.places.Find(current);
      ASSERT_NE(shards, nullptr);
      ASSERT_TRUE(std::ranges::any_of((*shards)[0].places, [&](const Place& place) {
        return stores_.Has(place, current);
      })) << "a current version cannot be read";
    }
    for (const auto& [token, manifest] : state.manifests.manifests()) {
      if (manifest.ended_pass.empty() || !checked_.insert(token).second) continue;
      int64_t edges = 0;
      for (const DoneBucket& bucket : manifest.ended_pass) {
        edges += bucket.stats.trained_edges + bucket.stats.held_out_edges;
      }
      ASSERT_EQ(edges, 10 * (kPartitions * kPartitions - 1));
    }
  }

  RandomStream random_;
  ClusterRun run_;
  RandomStores stores_{&run_, &random_};
  Trainer trainers_[3];
  SessionId last_session_ = 1000;
  uint64_t progress_ = 0;
  std::vector<std::pair<SessionId, ReleaseRequest>> late_;
  std::set<Token> tokens_;
  std::set<Token> checked_;
  std::string remembered_;
  Generation generation_ = 1;
  int64_t last_pass_ = 0;
  int64_t passes_ = 0;
  int64_t rewinds_ = 0;
  int64_t releases_ = 0;
  int64_t kills_ = 0;
};

TEST(ClusterPropertyTest, WhateverDiesEveryBucketIsInEveryVersionOnce) {
  int64_t passes = 0;
  int64_t rewinds = 0;
  int64_t releases = 0;
  int64_t kills = 0;
  for (uint64_t i = 0; i < 6; ++i) {
    const uint64_t seed = testing::TestSeed(20240612) + i;
    SCOPED_TRACE(::testing::Message() << "WEFT_TEST_SEED=" << seed);
    World world(seed);
    for (int step = 0; step < 4000 && !::testing::Test::HasFatalFailure(); ++step) {
      SCOPED_TRACE(::testing::Message() << "step " << step);
      world.Step();
    }
    if (::testing::Test::HasFailure()) return;
    passes += world.passes();
    rewinds += world.rewinds();
    releases += world.releases();
    kills += world.kills();
  }
  std::printf("passes=%lld rewinds=%lld releases=%lld kills=%lld\n", static_cast<long long>(passes),
              static_cast<long long>(rewinds), static_cast<long long>(releases),
              static_cast<long long>(kills));
  EXPECT_GT(passes, 20);
  EXPECT_GT(rewinds, 10);
  EXPECT_GT(releases, 1000);
  EXPECT_GT(kills, 50);
}

}  // namespace
}  // namespace weft
