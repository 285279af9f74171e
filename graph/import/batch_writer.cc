#include "graph/import/batch_writer.h"

#include <utility>

namespace weft {

BatchWriter::BatchWriter(Write write, Finish finish, int num_batches)
    : write_(std::move(write)), finish_(std::move(finish)) {
  for (int i = 0; i < num_batches; ++i) free_.push_back(std::make_unique<EdgeBatch>());
  worker_ = std::jthread([this] { Work(); });
}

BatchWriter::~BatchWriter() {
  MutexLock lock(&mu_);
  if (!closed_) dropped_ = true;
  closed_ = true;
  changed_.SignalAll();
}

std::unique_ptr<EdgeBatch> BatchWriter::Take() {
  MutexLock lock(&mu_);
  while (free_.empty() && status_.ok()) changed_.Wait(&mu_);
  if (!status_.ok()) return nullptr;
  std::unique_ptr<EdgeBatch> batch = std::move(free_.back());
  free_.pop_back();
  batch->edges.clear();
  batch->buckets.clear();
  return batch;
}

void BatchWriter::Submit(std::unique_ptr<EdgeBatch> batch) {
  MutexLock lock(&mu_);
  waiting_.push_back(std::move(batch));
  changed_.SignalAll();
}

void BatchWriter::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  changed_.SignalAll();
}

absl::Status BatchWriter::Wait() {
  worker_.join();
  return status();
}

absl::Status BatchWriter::status() {
  MutexLock lock(&mu_);
  return status_;
}

void BatchWriter::Work() {
  while (true) {
    std::unique_ptr<EdgeBatch> batch;
    {
      MutexLock lock(&mu_);
      while (waiting_.empty() && !closed_) changed_.Wait(&mu_);
      if (dropped_) return;
      if (!waiting_.empty()) {
        batch = std::move(waiting_.front());
        waiting_.pop_front();
      }
    }
    const absl::Status status = batch != nullptr ? write_(*batch) : finish_();
    MutexLock lock(&mu_);
    status_ = status;
    if (batch == nullptr || !status.ok()) {
      changed_.SignalAll();
      return;
    }
    free_.push_back(std::move(batch));
    changed_.SignalAll();
  }
}

}  // namespace weft
