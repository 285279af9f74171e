// BatchWriter hands batches of edges to a function on a thread of its own, in order, so that files
// are written while more is read.
//
// A few batches go round; whoever is faster waits. After an error of the function nothing more is
// handed to it.
// Thread-safety: the public methods belong to one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "graph/import/external_partitioner.h"
#include "services/common/mutex.h"

namespace weft {

struct EdgeBatch {
  int input = 0;
  std::vector<EdgeRecord> edges;
  std::vector<uint32_t> buckets;
};

class BatchWriter {
 public:
  using Write = std::function<absl::Status(EdgeBatch& batch)>;
  using Finish = std::function<absl::Status()>;

  // `write` gets every batch; `finish` runs on the same thread after the last one, unless there was
  // an error.
  BatchWriter(Write write, Finish finish, int num_batches);
  // Without Close before: drops the batches that wait and does not call `finish`.
  ~BatchWriter();

  // An empty batch to fill; waits for one. Null after an error.
  std::unique_ptr<EdgeBatch> Take();
  void Submit(std::unique_ptr<EdgeBatch> batch);

  // No more batches follow.
  void Close();
  // After Close: waits for the end, gives the first error.
  absl::Status Wait();
  // The first error so far.
  absl::Status status();

 private:
  void Work();

  const Write write_;
  const Finish finish_;

  Mutex mu_;
  CondVar changed_;
  std::vector<std::unique_ptr<EdgeBatch>> free_ ABSL_GUARDED_BY(mu_);
  std::deque<std::unique_ptr<EdgeBatch>> waiting_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool dropped_ ABSL_GUARDED_BY(mu_) = false;

  std::jthread worker_;  // last: it uses all of the above
};

}  // namespace weft
