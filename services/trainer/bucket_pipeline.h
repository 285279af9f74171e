// BucketPipeline moves partitions between grants: it brings in what a grant needs, keeps what the
// next one needs too, and stores and releases what is finished while training goes on.
//
// A copy of a partition is *named* by a token while it is bit-equal to that version. Training takes
// the name away; the end of the grant gives it the grant's token, provisionally, until the release
// is answered. What is being stored is not written: when the next grant keeps such a copy, it is
// given a clone. Storing begins as soon as a grant ends and never waits for the next one; flushing
// shared parameters, storing and releasing follow in this order, grant after grant.
//
// At most two grants are live: one in training, one being stored.
// Thread-safety: one caller at a time. Uses a thread for storing and one for reading ahead.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/embedding_partition.h"
#include "services/common/mutex.h"
#include "services/common/retry.h"
#include "services/common/run_stats.h"
#include "services/common/types.h"
#include "services/lock_server/lock_client.h"
#include "services/param_server/param_client.h"
#include "services/partition_server/partition_client.h"
#include "services/trainer/hogwild_pool.h"
#include "services/trainer/phase_clock.h"
#include "services/trainer/serial_executor.h"
#include "services/trainer/training_task.h"

namespace weft {

class BucketPipeline {
 public:
  struct Options {
    bool prefetch = true;          // read hinted partitions ahead
    bool background_store = true;  // false: Finish stores and releases before it returns
    int resident_partitions = 2;   // copies to keep, beside what is read ahead or being stored
    PhaseClock* phases = nullptr;  // counts the time of storing; may be null
    // For how long what the stores do not have (any more), or too few of them, is stored again.
    RetryOptions store_again = {};
  };

  // All must outlive this object. `pool` is used by Load, for filling and copying tables.
  BucketPipeline(const TrainingTask& task, const Options& options, LockClient* lock,
                 ParamClient* params, PartitionClient* partitions, HogwildPool* pool);
  // Waits for what is being stored.
  ~BucketPipeline();

  // The copies that the next request for a grant may name, by ascending key. A function of the
  // grants so far and their hints, not of how far the background threads have come.
  std::vector<PartitionVersion> Resident() const;

  // Makes every partition of the grant writable in memory.
  // Errors: those of reading a partition; names it.
  absl::Status Load(const Grant& grant);

  // A partition in training: between Load and Finish or Discard.
  EmbeddingPartition& partition(PartitionKey key) { return *training_.at(key); }

  // Begins to read the versions of `hint` that are not here. Versions that cannot be read are
  // read, and their errors told, when they are needed.
  void Prefetch(const std::vector<PartitionVersion>& hint);

  // Ends the training of a grant: its partitions are stored under its token and it is released.
  // Errors: of this grant's or the previous one's store or release (nothing further is released
  // then): Aborted when the session has ended.
  absl::Status Finish(const Grant& grant, std::vector<BucketStats> buckets);

  // Whether something that was finished is still being stored or released. Does not wait.
  // Errors: as Drain, once they are known: what was said to be still stored can only fail later.
  absl::StatusOr<bool> IsStoring() const;

  // Throws the copies in training away.
  void Discard() { training_.clear(); }

  // Waits until everything that was finished is released. Errors: as Finish.
  absl::Status Drain();

  // Drains, then throws every copy and name away, and with them the error: a new session begins.
  void Forget();

 private:
  using PartitionPtr = std::shared_ptr<EmbeddingPartition>;
  // A copy, or one that is still being read: then the reading thread writes `data` and `status`,
  // and they may be looked at after a drain.
  struct NamedCopy {
    Token token = kInitialToken;
    PartitionPtr data;
    absl::Status status;
  };
  struct StoreJob {
    Token token = kInitialToken;
    std::vector<std::pair<PartitionKey, PartitionPtr>> sources;
    std::vector<BucketStats> buckets;
  };

  PartitionPtr Allocate(PartitionKey key) const;
  absl::StatusOr<PartitionPtr> Bring(const GrantedPartition& wanted);
  absl::StatusOr<PartitionPtr> MakeWritable(PartitionKey key, PartitionPtr copy);
  // The copy that is being stored as this version, if any.
  PartitionPtr Storing(const PartitionVersion& version) const;
  absl::Status Initialise(PartitionKey key, EmbeddingPartition* out);
  void Evict(const Grant& grant);
  absl::Status store_error() const;
  void Store(const StoreJob& job);
  absl::Status StoreAndRelease(const StoreJob& job);

  const TrainingTask& task_;
  const Options options_;
  LockClient* const lock_;
  ParamClient* const params_;
  PartitionClient* const partitions_;
  HogwildPool* const pool_;

  // The caller's thread only.
  std::map<PartitionKey, PartitionPtr> training_;
  std::map<PartitionKey, std::shared_ptr<NamedCopy>> named_;

  mutable Mutex mu_;
  std::map<PartitionKey, NamedCopy> storing_ ABSL_GUARDED_BY(mu_);  // nobody writes these
  absl::Status store_error_ ABSL_GUARDED_BY(mu_);
  bool storer_works_ ABSL_GUARDED_BY(mu_) = false;

  SerialExecutor storer_;  // last: they use everything above
  SerialExecutor reader_;
};

}  // namespace weft
