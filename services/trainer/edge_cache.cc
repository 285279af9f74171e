#include "services/trainer/edge_cache.h"

#include <utility>

namespace weft {
EdgeCache::EdgeCache(const EdgeReader& reader, bool prefetch)
    : reader_(reader), prefetch_(prefetch) {}

EdgeCache::~EdgeCache() = default;

EdgeCache::Key EdgeCache::KeyOf(const PassPosition& position, Bucket bucket) {
  return {position.edge_path, position.edge_chunk, position.num_edge_chunks, bucket};
}

absl::StatusOr<const BucketEdges*> EdgeCache::Get(const PassPosition& position, Bucket bucket) {
  const Key key = KeyOf(position, bucket);
  if (current_ == nullptr || current_->key != key) {
    current_ = nullptr;  // its memory is free before the next edges are read
    executor_.Drain();
    // What could not be read ahead may be readable now: a grant tells where its edges lie.
    if (next_ != nullptr && next_->key == key && next_->edges.ok()) {
      current_ = std::move(next_);
    } else {
      next_ = nullptr;
      current_ = std::make_unique<Entry>(Entry{key, reader_.Read(position, bucket)});
    }
  }
  if (!current_->edges.ok()) {
    const absl::Status status = current_->edges.status();
    current_ = nullptr;  // another call may try again
    return status;
  }
  return &*current_->edges;
}

void EdgeCache::Prefetch(const PassPosition& position, Bucket bucket) {
  const Key key = KeyOf(position, bucket);
  if (!prefetch_ || (current_ != nullptr && current_->key == key)) return;
  if (next_ != nullptr && next_->key == key) return;  // on its way
  if (current_ != nullptr && current_->edges.ok() && current_->edges->bytes() > kMaxPrefetchBytes) {
    return;
  }
  executor_.Drain();
  next_ = std::make_unique<Entry>(Entry{key, absl::UnknownError("not read yet")});
  executor_.Submit([this, position, bucket] { next_->edges = reader_.Read(position, bucket); });
}

}  // namespace weft
