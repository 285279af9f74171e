// PartitionFileStore keeps versions of partitions as PBG's embedding files in one folder of this
// machine: the partition client of a run on one machine. A version becomes part of a checkpoint by
// a hard link; nothing is copied.
//
//   FOLDER/embeddings_{type}_{partition}.t{token}.h5
//
// A file is written aside, fsynced and renamed. A folder has one store at a time (the caller holds
// its lock); opening it removes what was left half-written.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "graph/checkpoint/embeddings_file.h"
#include "services/common/mutex.h"
#include "services/partition_server/partition_client.h"

namespace weft {

class PartitionFileStore : public PartitionClient {
 public:
  // `type_names`: by entity type id. `lr` goes into the files, for PBG.
  // Makes the folder when it is missing.
  static absl::StatusOr<std::unique_ptr<PartitionFileStore>> Open(
      std::string folder, std::vector<std::string> type_names, double lr);

  // Errors: also those of writing a file; a version that cannot be written leaves nothing behind.
  absl::Status Store(const PartitionVersion& name, const EmbeddingPartition& partition) override;
  absl::Status Read(const PartitionVersion& name, EmbeddingPartition* out) override;
  absl::StatusOr<EmbeddingsShape> Stat(const PartitionVersion& name);
  // Deletes every version with a token <= `high_water` that `keep` does not name.
  absl::Status Sweep(Token high_water, absl::Span<const PartitionVersion> keep);

  // Where in the run the versions are made that are stored from now on.
  void SetMetadata(CheckpointMetadata metadata);

  // Makes the file `path` the version `name`, too. Durable when it returns.
  absl::Status Adopt(const std::string& path, const PartitionVersion& name);
  // Makes the version's file `path`, too, in place of what is there. Not durable before the folder
  // of `path` is synced.
  absl::Status LinkTo(const PartitionVersion& name, const std::string& path) const;

 private:
  PartitionFileStore(std::string folder, std::vector<std::string> type_names, double lr);

  absl::Status Scan() ABSL_LOCKS_EXCLUDED(mu_);
  std::string PathOf(const PartitionVersion& name) const;
  bool Has(const PartitionVersion& name) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckSameContent(const PartitionVersion& name, const EmbeddingPartition& partition);

  const std::string folder_;
  const std::vector<std::string> type_names_;
  const double lr_;

  mutable Mutex mu_;
  absl::flat_hash_set<PartitionVersion> versions_ ABSL_GUARDED_BY(mu_);
  CheckpointMetadata metadata_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
