// Fakes of what TrainingLoop talks to, which check the rules that a trainer must keep: versions are
// immutable, bases are current, names are true, at most two grants are live, releases come in the
// order of grants.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/edge_chunk.h"
#include "services/common/mutex.h"
#include "services/lock_server/lock_client.h"
#include "services/param_server/param_client.h"
#include "services/partition_server/partition_client.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/training_task.h"

namespace weft::testing {

// Versions of partitions in memory.
class FakePartitionClient : public PartitionClient {
 public:
  absl::Status Read(const PartitionVersion& version, EmbeddingPartition* out) override {
    MutexLock lock(&mu_);
    ++reads_;
    const auto found = versions_.find({version.key, version.token});
    if (found == versions_.end()) return absl::NotFoundError("no such version");
    *out = found->second.Clone();
    return absl::OkStatus();
  }

  absl::Status Store(const PartitionVersion& version,
                     const EmbeddingPartition& partition) override {
    if (before_store) before_store();
    EmbeddingPartition copy = partition.Clone();
    MutexLock lock(&mu_);
    if (store_failures > 0) {
      --store_failures;
      return absl::ResourceExhaustedError("disk full");
    }
    ++stores_;
    versions_[{version.key, version.token}] = std::move(copy);
    return absl::OkStatus();
  }

  std::optional<EmbeddingPartition> Get(PartitionKey key, Token token) {
    MutexLock lock(&mu_);
    const auto found = versions_.find({key, token});
    if (found == versions_.end()) return std::nullopt;
    return found->second.Clone();
  }
  // Tokens are never used again within a run: another run has a store of its own.
  void Clear() {
    MutexLock lock(&mu_);
    versions_.clear();
  }
  void Forget(PartitionKey key, Token token) {
    MutexLock lock(&mu_);
    versions_.erase({key, token});
  }
  int reads() {
    MutexLock lock(&mu_);
    return reads_;
  }

  std::function<void()> before_store;  // set before use
  std::atomic<int> store_failures = 0;

 private:
  Mutex mu_;
  std::map<std::pair<PartitionKey, Token>, EmbeddingPartition> versions_ ABSL_GUARDED_BY(mu_);
  int reads_ ABSL_GUARDED_BY(mu_) = 0;
  int stores_ ABSL_GUARDED_BY(mu_) = 0;
};

// The trainer's copy is the only one; Flush keeps a copy of it.
class FakeParamClient : public ParamClient {
 public:
  explicit FakeParamClient(const TrainingTask& task) : task_(task) {}

  absl::Status Join(SharedState* live) override {
    ++joins;
    live_ = live;
    if (joins > 1) return absl::OkStatus();
    for (size_t t = 0; t < live->unpartitioned.size(); ++t) {
      const auto type = static_cast<EntityTypeId>(t);
      if (task_.IsShared(type)) {
        live->unpartitioned[t] =
            MakeInitialEmbeddings(task_.seed, {type, 0}, task_.count({type, 0}),
                                  task_.config.EntityDimension(type), task_.config.init_scale);
      }
    }
    return absl::OkStatus();
  }
  absl::Status Flush() override {
    ++flushes;
    if (flush_aborts > 0) {
      --flush_aborts;
      return absl::AbortedError("a later generation of the run is known here");
    }
    return flush_error;
  }

  // Set before use.
  absl::Status flush_error;
  std::atomic<int> flush_aborts = 0;
  std::atomic<int> joins = 0;
  std::atomic<int> flushes = 0;

 private:
  const TrainingTask& task_;
  SharedState* live_ = nullptr;
};

// Grants the buckets of `passes` passes, in lexicographic order, `buckets_per_grant` buckets over
// the same partitions at a time.
class FakeLockClient : public LockClient {
 public:
  struct Options {
    int passes = 1;
    std::map<Bucket, int64_t> edges;  // every bucket of the run
    bool group = false;               // grant all free buckets over the same partitions
    bool hint = false;
    int num_edge_chunks = 1;
  };

  FakeLockClient(const TrainingTask& task, Options options)
      : task_(task), options_(std::move(options)) {
    BeginPass();
  }

  absl::StatusOr<AcquireResult> AcquireBucket(const AcquireRequest& request) override {
    MutexLock lock(&mu_);
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoSeconds(request.wait);
    while (true) {
      if (!error.ok()) return error;
      if (session_ended_) {
        session_ended_ = false;  // the next call is a new session's
        return absl::AbortedError("the session has ended");
      }
      AcquireResult result;
      result.remaining = static_cast<int64_t>(free_.size() + live_.size());
      result.run_done = pass_ == options_.passes;
      if (result.run_done) return result;
      if (failed_) return absl::FailedPreconditionError("the run has failed");
      if (!free_.empty() && live_.size() < 2) {
        EXPECT_GT(request.number, last_number_);
        last_number_ = request.number;
        resident_log.push_back(request.resident);
        result.grant = MakeGrant(request);
        return result;
      }
      if (!changed_.WaitUntil(&mu_, deadline)) return result;
    }
  }

  absl::StatusOr<ReleaseResult> ReleaseBucket(const ReleaseRequest& request) override {
    MutexLock lock(&mu_);
    if (!error.ok()) return error;
    if (release_aborts > 0) {
      --release_aborts;
      Void();
      session_ended_ = true;
      return absl::AbortedError("the session has ended");
    }
    if (live_.empty() || live_.front().token != request.token) {
      ADD_FAILURE() << "release of " << request.token << " is not that of the oldest live grant";
      return absl::AbortedError("no such grant");
    }
    if (release_store_agains > 0) {
      --release_store_agains;
      for (const PartitionKey key : request.stored) partitions->Forget(key, request.token);
      return absl::FailedPreconditionError("store these again");
    }
    const Grant& grant = live_.front();
    EXPECT_EQ(request.buckets.size(), grant.buckets.size());
    for (size_t i = 0; i < request.buckets.size(); ++i) {
      const BucketStats& stats = request.buckets[i];
      EXPECT_EQ(stats.bucket, grant.buckets[i].bucket);
      EXPECT_EQ(stats.trained_edges + stats.held_out_edges, grant.buckets[i].expected_edges);
      released.push_back(stats);
    }
    std::set<PartitionKey> stored(request.stored.begin(), request.stored.end());
    EXPECT_EQ(stored.size(), grant.partitions.size());
    for (const GrantedPartition& p : grant.partitions) {
      EXPECT_TRUE(stored.contains(p.key));
      EXPECT_EQ(current_[p.key], p.base);
      EXPECT_TRUE(partitions->Get(p.key, request.token).has_value());
      current_[p.key] = request.token;
    }
    live_.pop_front();
    ReleaseResult result;
    if (free_.empty() && live_.empty()) {
      result.pass_done = true;
      ++pass_;
      BeginPass();
    }
    changed_.SignalAll();
    return result;
  }

  absl::Status AbandonBucket(Token token) override {
    MutexLock lock(&mu_);
    if (live_.empty() || live_.back().token != token) return absl::OkStatus();
    for (auto it = live_.back().buckets.rbegin(); it != live_.back().buckets.rend(); ++it) {
      free_.push_front(it->bucket);
    }
    live_.pop_back();
    ++abandoned;
    return absl::OkStatus();
  }

  absl::Status ReportFailure(Token token, const TrainingFailure& failure) override {
    MutexLock lock(&mu_);
    failures.push_back(failure);
    failed_ = true;
    live_.clear();
    return absl::OkStatus();
  }

  absl::Status Leave() override {
    MutexLock lock(&mu_);
    Void();
    last_number_ = 0;  // the numbers of another session begin anew
    session_ended_ = false;
    left = true;
    return absl::OkStatus();
  }

  // The current version of a partition as tests see it.
  Token current(PartitionKey key) {
    MutexLock lock(&mu_);
    return current_[key];
  }

  FakePartitionClient* partitions = nullptr;  // set before use
  // Read by tests when the loop has ended; written under the lock.
  std::vector<BucketStats> released;
  std::vector<std::vector<PartitionVersion>> resident_log;
  std::vector<TrainingFailure> failures;
  int abandoned = 0;
  bool left = false;
  // Set before use.
  absl::Status error;
  int release_aborts = 0;
  int release_store_agains = 0;
  // A version that exists when the run begins.
  void SetCurrent(PartitionKey key, Token token) {
    MutexLock lock(&mu_);
    current_[key] = token;
  }

 private:
  void BeginPass() {
    for (const auto& [bucket, edges] : options_.edges) free_.push_back(bucket);
  }

  std::vector<PartitionKey> PartitionsOf(Bucket bucket) const {
    std::set<PartitionKey> keys;
    for (const RelationSpec& relation : task_.spec.relations) {
      if (!task_.IsShared(relation.lhs)) keys.insert({relation.lhs, bucket.lhs});
      if (!task_.IsShared(relation.rhs)) keys.insert({relation.rhs, bucket.rhs});
    }
    return {keys.begin(), keys.end()};
  }

  // The version that the session will find: of its latest live grant, or the current one.
  Token BaseOf(PartitionKey key) {
    for (auto it = live_.rbegin(); it != live_.rend(); ++it) {
      for (const GrantedPartition& p : it->partitions) {
        if (p.key == key) return it->token;
      }
    }
    return current_[key];
  }

  Grant MakeGrant(const AcquireRequest& request) {
    Grant grant;
    grant.token = ++last_token_;
    grant.position.pass = pass_;
    grant.position.epoch = pass_ / options_.num_edge_chunks;
    grant.position.edge_chunk = pass_ % options_.num_edge_chunks;
    grant.position.num_edge_chunks = options_.num_edge_chunks;
    const std::vector<PartitionKey> keys = PartitionsOf(free_.front());
    auto take = [&](Bucket bucket) {
      const EdgeRange chunk = EdgeChunkRange(options_.edges.at(bucket), grant.position.edge_chunk,
                                             grant.position.num_edge_chunks);
      grant.buckets.push_back({bucket, chunk.size()});
    };
    take(free_.front());
    free_.pop_front();
    for (auto it = free_.begin(); options_.group && it != free_.end();) {
      const std::vector<PartitionKey> others = PartitionsOf(*it);
      if (std::ranges::includes(keys, others)) {
        take(*it);
        it = free_.erase(it);
      } else {
        ++it;
      }
    }
    for (const PartitionKey key : keys) {
      GrantedPartition& p = grant.partitions.emplace_back();
      p.key = key;
      p.base = BaseOf(key);
      const bool resident = std::ranges::any_of(request.resident, [&](const PartitionVersion& v) {
        return v.key == key && v.token == p.base;
      });
      p.source = resident                  ? GrantedPartition::Source::kKeep
                 : p.base == kInitialToken ? GrantedPartition::Source::kInitialise
                                           : GrantedPartition::Source::kRead;
      // What is neither named nor stored could not be read.
      if (p.source == GrantedPartition::Source::kRead && p.base <= last_token_) {
        EXPECT_TRUE(partitions->Get(key, p.base).has_value());
      }
    }
    live_.push_back(grant);
    if (options_.hint && !free_.empty()) {
      grant.hinted_bucket = free_.front();
      for (const PartitionKey key : PartitionsOf(free_.front())) {
        grant.hint.push_back({key, BaseOf(key)});
      }
    }
    return grant;
  }

  // The session's grants end and their buckets return to the pool.
  void Void() {
    for (auto it = live_.rbegin(); it != live_.rend(); ++it) {
      for (const GrantedBucket& b : it->buckets) free_.push_front(b.bucket);
    }
    live_.clear();
    changed_.SignalAll();
  }

  const TrainingTask& task_;
  const Options options_;

  Mutex mu_;
  CondVar changed_;
  int pass_ = 0;
  std::deque<Bucket> free_;
  std::deque<Grant> live_;
  std::map<PartitionKey, Token> current_;
  Token last_token_ = 0;
  uint64_t last_number_ = 0;
  bool failed_ = false;
  bool session_ended_ = false;
};

// "Trains" by counting: column 0 of an entity's row is the number of edges trained with it on the
// left-hand side, column 1 on the right-hand side. Sums stay exact in float up to 2^24.
class CountingBatchStep : public BatchStep {
 public:
  // Called with each batch before it is trained; its error is the batch's.
  using Hook = std::function<absl::Status(const EdgeBatch&)>;

  explicit CountingBatchStep(const Hook* hook) : hook_(hook) {}

  absl::StatusOr<BatchStats> Train(const EdgeBatch& batch, const SampledNegatives& negatives,
                                   const BatchTables& tables) override {
    if (*hook_) {
      if (absl::Status status = (*hook_)(batch); !status.ok()) return status;
    }
    for (size_t i = 0; i < batch.lhs.size(); ++i) {
      Count(tables.lhs, batch.lhs[i], 0);
      Count(tables.rhs, batch.rhs[i], 1);
    }
    return BatchStats{.count = batch.size(), .loss = 2.0 * static_cast<double>(batch.size())};
  }

  absl::StatusOr<BatchStats> Score(const EdgeBatch& batch, const SampledNegatives& negatives,
                                   const BatchTables& tables, BatchScores* scores) override {
    const auto n = batch.lhs.size();
    scores->lhs_pos.assign(n, 0.5f);
    scores->rhs_pos.assign(n, 0.5f);
    scores->lhs_num_neg = scores->rhs_num_neg = 2;
    scores->lhs_neg.assign(2 * n, 0.25f);
    scores->rhs_neg.assign(2 * n, 0.75f);
    return BatchStats{.count = batch.size(), .loss = static_cast<double>(batch.size())};
  }

  absl::StatusOr<BatchGradients> Gradients(const EdgeBatch&, const SampledNegatives&,
                                           const BatchTables&) override {
    return absl::UnimplementedError("not needed");
  }

 private:
  static void Count(const EmbeddingTable& table, EntityOffset offset, int column) {
    ASSERT_LT(offset, table.count);
    std::atomic_ref<float> cell(table.embeddings[offset * table.dimension + column]);
    cell.fetch_add(1);
  }

  const Hook* hook_;
};

class CountingStepFactory : public BatchStepFactory {
 public:
  absl::StatusOr<ParameterSet> MakeParameters(const ModelSpec& spec) const override {
    return MakeInitialParameters(spec);
  }
  absl::StatusOr<std::unique_ptr<BatchStep>> Make(const ModelSpec& spec,
                                                  ParameterSet* parameters) const override {
    return std::make_unique<CountingBatchStep>(&hook);
  }

  CountingBatchStep::Hook hook;  // set before use; must be thread-safe
};

}  // namespace weft::testing
