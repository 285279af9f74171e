// EdgeReader reads the edges of a bucket that belong to a pass: the pass's edge path and edge
// chunk, without the held-out ones, ready for training.
//
// Every id is checked against the sizes of the task, so that no bad one reaches a kernel. In a
// folder, a bucket without a file is empty.
//
// Thread-safety: constant after construction.
#pragma once

#include "absl/status/statusor.h"
#include "services/common/types.h"
#include "services/lock_server/lock_client.h"
#include "services/trainer/bucket_edges.h"
#include "services/trainer/edge_source.h"
#include "services/trainer/training_task.h"

namespace weft {

class EdgeReader {
 public:
  // Both must outlive this object. `source`: null: the folders of the task's edge paths.
  explicit EdgeReader(const TrainingTask& task, EdgeSource* source = nullptr)
      : task_(task),
        folders_(task.config.edge_paths),
        source_(source != nullptr ? *source : folders_) {}

  // Errors: as EdgeSource::Read.
  absl::StatusOr<BucketEdges> Read(const PassPosition& position, Bucket bucket) const;

 private:
  const TrainingTask& task_;
  mutable FolderEdgeSource folders_;
  EdgeSource& source_;
};

}  // namespace weft
