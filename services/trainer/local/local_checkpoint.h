// LocalCheckpoint makes the files of a run on one machine: what all trainers share, and the
// versions of a checkpoint folder.
//
// Where what is shared lives, durably, in pass p (which makes version p + 1):
//   before a bucket of the pass is released   in the files of version p (p = 0: initial values)
//   after that, several buckets in a pass     in .weft/shared.snapshot, written by each flush
//   after that, one bucket in a pass          in the files of version p + 1, written by the flush
// A version is made of the partitions' blobs by hard links; a partition that was never trained gets
// its initial embeddings. Then come the statistics, the configuration, and last the version
// pointer.
//
// Thread-safety: Save may be called while nothing else is; else one call at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "services/common/mutex.h"
#include "services/common/run_config.h"
#include "services/lock_server/checkpoint_writer.h"
#include "services/param_server/shared_state_store.h"
#include "services/partition_server/partition_file_store.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/local/local_init_checkpoint.h"

namespace weft {

class LocalCheckpoint : public CheckpointWriter, public SharedStateStore {
 public:
  struct Options {
    RunConfig config;  // effective
    std::string run_id;
    std::vector<std::vector<int64_t>> entity_counts;
    uint64_t entities_digest = 0;
    std::optional<LocalInitCheckpoint> init;  // of a run that has not committed anything
    // Called with the name of each step that has been done; for crash tests.
    std::function<void(absl::string_view step)> on_step;
  };

  // `blobs` must outlive this object.
  LocalCheckpoint(Options options, CheckpointDir dir, PartitionFileStore* blobs);

  // Where the run stands when it is opened. `begun`: a bucket of the pass has been released.
  void Resume(const PassPosition& position, bool begun);

  // CheckpointWriter.
  void BeginPass(const PassPosition& position) override;
  absl::Status CheckStored(absl::Span<const PartitionVersion> versions) override;
  absl::Status WriteVersion(const CompletePass& pass) override;
  std::vector<int64_t> RemoveVersions(absl::Span<const int64_t> versions) override;
  void Sweep(const KeepList& list) override;

  // SharedStateStore. What Load filled is what WriteVersion writes: it must outlive this object.
  absl::Status Load(SharedState* live) override;
  absl::Status Save(const SharedState& live) override;

  // Keeps a version for ever, as epoch_{epoch}/.
  absl::Status Preserve(int64_t version, int epoch);
  // Whether the version that ends `epochs` epochs is one to be kept.
  bool IsToBePreserved(int epochs) const;

 private:
  bool one_bucket() const { return num_buckets_ == 1; }
  bool IsShared(size_t type) const {
    return options_.entity_counts[type].size() == 1 &&
           IsTrained(options_.config, static_cast<EntityTypeId>(type));
  }
  std::string SnapshotPath() const;
  CheckpointMetadata Metadata(const PassPosition& position) const;
  absl::Status WriteShared(const SharedState& live, const PassPosition& position);
  absl::Status ReadShared(int64_t version, SharedState* live) const;
  absl::Status InitialiseShared(SharedState* live) const;
  absl::Status LinkPartitions(const CompletePass& pass) const;
  absl::Status WriteInitialPartition(PartitionKey key, const CompletePass& pass) const;
  void Step(absl::string_view step) const;

  const Options options_;
  CheckpointDir dir_;
  PartitionFileStore* const blobs_;
  const int64_t num_buckets_;
  const std::string pbg_config_;

  mutable Mutex mu_;
  PassPosition position_ ABSL_GUARDED_BY(mu_);
  bool begun_ ABSL_GUARDED_BY(mu_) = false;
  bool saved_ ABSL_GUARDED_BY(mu_) = false;  // by this process, in this pass
  const SharedState* live_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace weft
