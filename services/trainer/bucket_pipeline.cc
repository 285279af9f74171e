#include "services/trainer/bucket_pipeline.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"
#include "services/trainer/model/model_parameters.h"

namespace weft {
namespace {

// Rows that one task fills or copies.
constexpr int64_t kRowsPerTask = 4096;
// How often partitions are stored anew when the release finds them gone (a store that restarted).
constexpr int kMaxStoreAttempts = 3;

// Calls `work(begin, end)` for all of [0, rows) on the pool.
absl::Status ForRows(HogwildPool* pool, int64_t rows,
                     absl::FunctionRef<void(int64_t begin, int64_t end)> work) {
  return pool->Run((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int, int64_t task) {
    work(task * kRowsPerTask, std::min(rows, (task + 1) * kRowsPerTask));
    return absl::OkStatus();
  });
}

}  // namespace

BucketPipeline::BucketPipeline(const TrainingTask& task, const Options& options, LockClient* lock,
                               ParamClient* params, PartitionClient* partitions, HogwildPool* pool)
    : task_(task),
      options_(options),
      lock_(lock),
      params_(params),
      partitions_(partitions),
      pool_(pool) {}

BucketPipeline::~BucketPipeline() = default;

std::vector<PartitionVersion> BucketPipeline::Resident() const {
  std::map<PartitionKey, Token> tokens;
  for (const auto& [key, copy] : named_) tokens[key] = copy.token;
  // What is still being read counts: Load waits for it, and reads anew what failed.
  for (const auto& [key, ahead] : reading_) tokens[key] = ahead->token;
  std::vector<PartitionVersion> versions;
  for (const auto& [key, token] : tokens) versions.push_back({key, token});
  return versions;
}

BucketPipeline::PartitionPtr BucketPipeline::Allocate(PartitionKey key) const {
  return std::make_shared<EmbeddingPartition>(task_.count(key),
                                              task_.config.EntityDimension(key.entity_type));
}

absl::Status BucketPipeline::Load(const Grant& grant) {
  WEFT_CHECK(training_.empty());
  ++grants_loaded_;
  // Read-ahead copies that this grant wants become named ones.
  for (const GrantedPartition& wanted : grant.partitions) {
    auto found = reading_.find(wanted.key);
    if (found == reading_.end()) continue;
    reader_.Drain();
    const std::shared_ptr<ReadAhead> ahead = std::move(found->second);
    reading_.erase(found);
    if (ahead->status.ok()) named_[wanted.key] = {ahead->token, ahead->data, grants_loaded_};
  }
  Evict(grant);
  for (const GrantedPartition& wanted : grant.partitions) {
    WEFT_ASSIGN_OR_RETURN(PartitionPtr copy, Bring(wanted));
    training_[wanted.key] = std::move(copy);
  }
  return absl::OkStatus();
}

absl::StatusOr<BucketPipeline::PartitionPtr> BucketPipeline::Bring(const GrantedPartition& wanted) {
  auto named = named_.extract(wanted.key);
  if (wanted.source == GrantedPartition::Source::kInitialise) {
    PartitionPtr fresh = Allocate(wanted.key);
    WEFT_RETURN_IF_ERROR(Initialise(wanted.key, fresh.get()));
    return fresh;
  }
  if (!named.empty() && named.mapped().token == wanted.base) {
    return MakeWritable(std::move(named.mapped().data));
  }
  named = {};  // its memory is free before another copy is read
  PartitionPtr read = Allocate(wanted.key);
  const absl::Status status = partitions_->Read({wanted.key, wanted.base}, read.get());
  if (!status.ok()) {
    return Annotate(status, absl::StrCat("partition ", wanted.key.partition, " of ",
                                         task_.config.entities[wanted.key.entity_type].name));
  }
  return read;
}

absl::StatusOr<BucketPipeline::PartitionPtr> BucketPipeline::MakeWritable(PartitionPtr copy) {
  {
    MutexLock lock(&mu_);
    if (!storing_.contains(copy.get())) return copy;
  }
  PartitionPtr clone = std::make_shared<EmbeddingPartition>(copy->count(), copy->dimension());
  WEFT_RETURN_IF_ERROR(ForRows(pool_, copy->count(), [&](int64_t begin, int64_t end) {
    std::copy(copy->embeddings.row(begin).data(), copy->embeddings.row(end).data(),
              clone->embeddings.row(begin).data());
    std::copy(copy->adagrad_sums.row(begin).data(), copy->adagrad_sums.row(end).data(),
              clone->adagrad_sums.row(begin).data());
  }));
  return clone;
}

absl::Status BucketPipeline::Initialise(PartitionKey key, EmbeddingPartition* out) {
  return ForRows(pool_, out->count(), [&](int64_t begin, int64_t end) {
    FillInitialEmbeddings(task_.seed, key, task_.config.init_scale, begin, end, &out->embeddings);
  });
}

void BucketPipeline::Evict(const Grant& grant) {
  std::set<PartitionKey> needed;
  for (const GrantedPartition& p : grant.partitions) needed.insert(p.key);
  std::set<PartitionKey> hinted;
  for (const PartitionVersion& v : grant.hint) hinted.insert(v.key);
  // Hinted copies stay longest, then those used last. With read-ahead, hinted ones always stay:
  // they would be read again at once.
  std::vector<PartitionKey> idle;
  for (const auto& [key, copy] : named_) {
    if (needed.contains(key) || (options_.prefetch && hinted.contains(key))) continue;
    idle.push_back(key);
  }
  std::ranges::sort(idle, [&](PartitionKey a, PartitionKey b) {
    return std::tuple(!hinted.contains(a), named_[b].last_use, a) <
           std::tuple(!hinted.contains(b), named_[a].last_use, b);
  });
  const auto room = static_cast<size_t>(
      std::max(0, options_.resident_partitions - static_cast<int>(needed.size())));
  for (size_t i = room; i < idle.size(); ++i) named_.erase(idle[i]);
}

void BucketPipeline::Prefetch(const std::vector<PartitionVersion>& hint) {
  if (!options_.prefetch) return;
  std::map<PartitionKey, std::shared_ptr<ReadAhead>> kept;
  for (const PartitionVersion& version : hint) {
    const bool here = training_.contains(version.key) ||
                      (named_.contains(version.key) && named_[version.key].token == version.token);
    if (here || version.token == kInitialToken) continue;
    if (auto found = reading_.find(version.key);
        found != reading_.end() && found->second->token == version.token) {
      kept[version.key] = found->second;
      continue;
    }
    auto ahead = std::make_shared<ReadAhead>();
    ahead->token = version.token;
    kept[version.key] = ahead;
    reader_.Submit([this, version, ahead] {
      ahead->data = Allocate(version.key);
      ahead->status = partitions_->Read(version, ahead->data.get());
    });
  }
  reading_ = std::move(kept);
}

absl::Status BucketPipeline::Finish(const Grant& grant, std::vector<BucketStats> buckets) {
  WEFT_RETURN_IF_ERROR(Drain());
  StoreJob job{grant.token, {}, std::move(buckets)};
  for (auto& [key, data] : training_) {
    named_[key] = {grant.token, data, grants_loaded_};
    job.sources.emplace_back(key, std::move(data));
  }
  training_.clear();
  {
    MutexLock lock(&mu_);
    for (const auto& [key, data] : job.sources) storing_.insert(data.get());
  }
  storer_.Submit([this, job = std::move(job)] { Store(job); });
  return options_.background_store ? absl::OkStatus() : Drain();
}

void BucketPipeline::Store(const StoreJob& job) {
  absl::Status status = StoreAndRelease(job);
  MutexLock lock(&mu_);
  for (const auto& [key, data] : job.sources) storing_.erase(data.get());
  if (store_error_.ok()) store_error_ = std::move(status);
}

absl::Status BucketPipeline::StoreAndRelease(const StoreJob& job) {
  WEFT_RETURN_IF_ERROR(params_->Flush());
  ReleaseRequest request;
  request.token = job.token;
  request.buckets = job.buckets;
  for (const auto& [key, data] : job.sources) request.stored.push_back(key);
  absl::Status status;
  for (int attempt = 0; attempt < kMaxStoreAttempts; ++attempt) {
    for (const auto& [key, data] : job.sources) {
      const absl::Status stored = partitions_->Store({key, job.token}, *data);
      if (!stored.ok()) {
        return Annotate(stored, absl::StrCat("cannot store partition ", key.partition, " of ",
                                             task_.config.entities[key.entity_type].name));
      }
    }
    status = lock_->ReleaseBucket(request).status();
    if (!absl::IsFailedPrecondition(status)) break;
  }
  return status;
}

absl::Status BucketPipeline::store_error() const {
  MutexLock lock(&mu_);
  return store_error_;
}

absl::Status BucketPipeline::Drain() {
  storer_.Drain();
  return store_error();
}

void BucketPipeline::Forget() {
  storer_.Drain();
  reader_.Drain();
  training_.clear();
  named_.clear();
  reading_.clear();
  MutexLock lock(&mu_);
  store_error_ = absl::OkStatus();
}

}  // namespace weft
