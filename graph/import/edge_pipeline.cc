#include "graph/import/edge_pipeline.h"

#include <utility>

#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft {

EdgePipeline::EdgePipeline(const Options& options, const DatasetSchema& schema,
                           const EntityDictionary& relations, std::vector<std::string> inputs)
    : options_(options), schema_(schema), relations_(relations), inputs_(std::move(inputs)) {
  WEFT_CHECK(options.num_threads >= 1 && options.num_blocks > options.num_threads);
  for (int i = 0; i < options.num_blocks; ++i) free_.push_back(std::make_unique<EdgeBlock>());
  for (int i = 0; i < options.num_threads; ++i) workers_.emplace_back([this] { Work(); });
}

EdgePipeline::~EdgePipeline() {
  MutexLock lock(&mu_);
  stopping_ = true;
  changed_.SignalAll();
}

void EdgePipeline::Work() {
  EdgeParser parser(options_.parser, schema_, relations_);
  while (std::unique_ptr<EdgeBlock> block = TakeFree()) {
    int64_t sequence = 0;
    absl::StatusOr<bool> more = false;
    {
      MutexLock lock(&read_mu_);
      if (read_all_) return;
      sequence = next_to_read_++;
      more = ReadBlock(block.get());
      read_all_ = !more.ok() || !*more;
    }
    if (!more.ok() || !*more) {
      Deliver(sequence, {more.status(), nullptr});
      return;
    }
    parser.Parse(block.get());
    Deliver(sequence, {absl::OkStatus(), std::move(block)});
  }
}

std::unique_ptr<EdgeBlock> EdgePipeline::TakeFree() {
  MutexLock lock(&mu_);
  while (free_.empty() && !stopping_) changed_.Wait(&mu_);
  if (stopping_) return nullptr;
  std::unique_ptr<EdgeBlock> block = std::move(free_.back());
  free_.pop_back();
  return block;
}

absl::StatusOr<bool> EdgePipeline::ReadBlock(EdgeBlock* block) {
  while (digests_.size() < inputs_.size()) {
    if (reader_ == nullptr) {
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source,
                            ByteSource::Open(inputs_[digests_.size()]));
      reader_ = std::make_unique<LineReader>(std::move(source), options_.reader);
      first_block_ = true;
    }
    WEFT_ASSIGN_OR_RETURN(const bool more, reader_->Read(&block->block));
    const int64_t bytes = bytes_before_ + reader_->source().digest().bytes;
    bytes_read_.store(bytes, std::memory_order_relaxed);
    if (more) {
      block->input = static_cast<int>(digests_.size());
      block->first = std::exchange(first_block_, false);
      return true;
    }
    digests_.push_back(reader_->source().digest());
    bytes_before_ = bytes;
    reader_ = nullptr;
  }
  return false;
}

void EdgePipeline::Deliver(int64_t sequence, Result result) {
  MutexLock lock(&mu_);
  ready_.emplace(sequence, std::move(result));
  changed_.SignalAll();
}

absl::StatusOr<std::unique_ptr<EdgeBlock>> EdgePipeline::Next() {
  if (ended_) return nullptr;
  MutexLock lock(&mu_);
  while (!ready_.contains(next_to_give_)) changed_.Wait(&mu_);
  Result result = std::move(ready_.extract(next_to_give_++).mapped());
  ended_ = result.block == nullptr;
  WEFT_RETURN_IF_ERROR(result.status);
  return std::move(result.block);
}

void EdgePipeline::Recycle(std::unique_ptr<EdgeBlock> block) {
  MutexLock lock(&mu_);
  free_.push_back(std::move(block));
  changed_.SignalAll();
}

InputDigest EdgePipeline::digest(int input) const {
  MutexLock lock(&read_mu_);
  WEFT_CHECK(static_cast<size_t>(input) < digests_.size());
  return digests_[input];
}

}  // namespace weft
