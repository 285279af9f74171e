#include "services/trainer/bucket_pipeline.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"
#include "services/trainer/model/model_parameters.h"

namespace weft {
namespace {

// Rows that one task fills or copies.
constexpr int64_t kRowsPerTask = 4096;

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
  // What is still being read counts: Load waits for it, and reads anew what failed.
  std::vector<PartitionVersion> versions;
  for (const auto& [key, copy] : named_) versions.push_back({key, copy->token});
  return versions;
}

BucketPipeline::PartitionPtr BucketPipeline::Allocate(PartitionKey key) const {
  return std::make_shared<EmbeddingPartition>(task_.count(key),
                                              task_.config.EntityDimension(key.entity_type));
}

absl::Status BucketPipeline::Load(const Grant& grant) {
  WEFT_CHECK(training_.empty());
  Evict(grant);
  for (const GrantedPartition& wanted : grant.partitions) {
    absl::StatusOr<PartitionPtr> brought = Bring(wanted);
    if (!brought.ok()) {
      // What could not be stored cannot be read either: that is the cause.
      WEFT_RETURN_IF_ERROR(store_error());
      return brought.status();
    }
    training_[wanted.key] = *std::move(brought);
  }
  return absl::OkStatus();
}

absl::StatusOr<BucketPipeline::PartitionPtr> BucketPipeline::Bring(const GrantedPartition& wanted) {
  std::shared_ptr<NamedCopy> named;
  if (auto node = named_.extract(wanted.key)) named = std::move(node.mapped());
  if (wanted.source == GrantedPartition::Source::kInitialise) {
    PartitionPtr fresh = Allocate(wanted.key);
    WEFT_RETURN_IF_ERROR(Initialise(wanted.key, fresh.get()));
    return fresh;
  }
  if (named != nullptr && named->token == wanted.base) {
    reader_.Drain();
    if (named->status.ok()) return MakeWritable(wanted.key, std::move(named->data));
  }
  named = nullptr;  // its memory is free before another copy is read
  if (PartitionPtr storing = Storing({wanted.key, wanted.base})) {
    return MakeWritable(wanted.key, std::move(storing));
  }
  PartitionPtr read = Allocate(wanted.key);
  const absl::Status status = partitions_->Read({wanted.key, wanted.base}, read.get());
  if (!status.ok()) {
    return Annotate(status, absl::StrCat("partition ", wanted.key.partition, " of ",
                                         task_.config.entities[wanted.key.entity_type].name));
  }
  return read;
}

absl::StatusOr<BucketPipeline::PartitionPtr> BucketPipeline::MakeWritable(PartitionKey key,
                                                                          PartitionPtr copy) {
  {
    MutexLock lock(&mu_);
    const auto storing = storing_.find(key);
    if (storing == storing_.end() || storing->second.data != copy) return copy;
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

BucketPipeline::PartitionPtr BucketPipeline::Storing(const PartitionVersion& version) const {
  MutexLock lock(&mu_);
  const auto storing = storing_.find(version.key);
  if (storing == storing_.end() || storing->second.token != version.token) return nullptr;
  return storing->second.data;
}

absl::Status BucketPipeline::Initialise(PartitionKey key, EmbeddingPartition* out) {
  return ForRows(pool_, out->count(), [&](int64_t begin, int64_t end) {
    FillInitialEmbeddings(task_.seed, key, task_.config.init_scale, begin, end, &out->embeddings);
  });
}

void BucketPipeline::Evict(const Grant& grant) {
  std::set<PartitionKey> needed;
  for (const GrantedPartition& p : grant.partitions) needed.insert(p.key);
  std::vector<PartitionKey> idle = grant.let_go;  // the first to go first
  std::erase_if(idle, [&](PartitionKey key) { return !named_.contains(key); });
  for (const auto& [key, copy] : named_) {
    if (!needed.contains(key) && std::ranges::find(idle, key) == idle.end()) {
      idle.insert(idle.begin(), key);
    }
  }
  int room = std::max(0, options_.resident_partitions - static_cast<int>(needed.size()));
  // Nothing to read ahead: what comes next is here already, and stays.
  if (options_.prefetch && grant.hint.empty()) room = std::max(room, 1);
  for (size_t i = 0; i + static_cast<size_t>(room) < idle.size(); ++i) named_.erase(idle[i]);
}

void BucketPipeline::Prefetch(const std::vector<PartitionVersion>& hint) {
  if (!options_.prefetch) return;
  for (const PartitionVersion& version : hint) {
    // Initial content is drawn faster than it would be read.
    if (version.token == kInitialToken || training_.contains(version.key)) continue;
    std::shared_ptr<NamedCopy>& copy = named_[version.key];
    if (copy != nullptr && copy->token == version.token) continue;
    copy = std::make_shared<NamedCopy>();
    copy->token = version.token;
    copy->data = Storing(version);
    if (copy->data != nullptr) continue;
    reader_.Submit([this, version, copy] {
      copy->data = Allocate(version.key);
      copy->status = partitions_->Read(version, copy->data.get());
    });
  }
}

absl::Status BucketPipeline::Finish(const Grant& grant, std::vector<BucketStats> buckets) {
  WEFT_RETURN_IF_ERROR(Drain());
  StoreJob job{grant.token, {}, std::move(buckets)};
  for (auto& [key, data] : training_) {
    named_[key] = std::make_shared<NamedCopy>(NamedCopy{grant.token, data, absl::OkStatus()});
    job.sources.emplace_back(key, std::move(data));
  }
  training_.clear();
  {
    MutexLock lock(&mu_);
    storer_works_ = true;
    for (const auto& [key, data] : job.sources) storing_[key] = {grant.token, data, {}};
  }
  storer_.Submit([this, job = std::move(job)] { Store(job); });
  return options_.background_store ? absl::OkStatus() : Drain();
}

void BucketPipeline::Store(const StoreJob& job) {
  absl::Status status;
  {
    const PhaseClock::Span span(options_.phases, TrainingPhase::kStore);
    status = StoreAndRelease(job);
  }
  MutexLock lock(&mu_);
  storing_.clear();  // one job at a time
  storer_works_ = false;
  if (store_error_.ok()) store_error_ = std::move(status);
}

absl::Status BucketPipeline::StoreAndRelease(const StoreJob& job) {
  WEFT_RETURN_IF_ERROR(params_->Flush());
  ReleaseRequest request;
  request.token = job.token;
  request.buckets = job.buckets;
  for (const auto& [key, data] : job.sources) request.stored.push_back(key);
  CancelFlag never;  // what ends the trainer's calls ends this, too
  Backoff backoff(options_.store_again, job.token);
  while (true) {
    for (const auto& [key, data] : job.sources) {
      const absl::Status stored = partitions_->Store({key, job.token}, *data);
      if (!stored.ok()) {
        return Annotate(stored, absl::StrCat("cannot store partition ", key.partition, " of ",
                                             task_.config.entities[key.entity_type].name));
      }
    }
    const absl::Status status = lock_->ReleaseBucket(request).status();
    if (!absl::IsFailedPrecondition(status)) return status;
    // A store has restarted; or one is gone, and within a lease the lock server asks for fewer.
    const auto delay = backoff.Next(std::chrono::steady_clock::now());
    if (!delay.has_value()) return status;
    never.WaitFor(*delay);
  }
}

absl::StatusOr<bool> BucketPipeline::IsStoring() const {
  MutexLock lock(&mu_);
  if (!store_error_.ok()) return store_error_;
  return storer_works_;
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
  MutexLock lock(&mu_);
  store_error_ = absl::OkStatus();
}

}  // namespace weft
