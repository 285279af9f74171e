// EdgeReader reads the edges of a bucket that belong to a pass: the pass's edge path and edge
// chunk, without the held-out ones, ready for training.
//
// Every id is checked against the sizes of the task, so that no bad one reaches a kernel. A bucket
// without a file is empty.
//
// Thread-safety: constant after construction.
#pragma once

#include "absl/status/statusor.h"
#include "services/common/types.h"
#include "services/lock_server/lock_client.h"
#include "services/trainer/bucket_edges.h"
#include "services/trainer/training_task.h"

namespace weft {

class EdgeReader {
 public:
  // `task` must outlive this object.
  explicit EdgeReader(const TrainingTask& task) : task_(task) {}

  // Errors: InvalidArgument (an id out of range, a bad weight; names file, data set and row),
  // DataLoss (a damaged file).
  absl::StatusOr<BucketEdges> Read(const PassPosition& position, Bucket bucket) const;

 private:
  const TrainingTask& task_;
};

}  // namespace weft
