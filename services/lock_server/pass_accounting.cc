#include "services/lock_server/pass_accounting.h"

#include "absl/strings/str_cat.h"
#include "services/common/edge_chunk.h"

namespace weft {

PassAccounting::PassAccounting(const std::vector<int64_t>& bucket_edges, int num_rhs,
                               const PassPosition& position)
    : bucket_edges_(&bucket_edges), num_rhs_(num_rhs), position_(position) {
  for (size_t i = 0; i < bucket_edges.size(); ++i) {
    const auto n = static_cast<size_t>(num_rhs);
    expected_edges_ += Expected({static_cast<int>(i / n), static_cast<int>(i % n)});
  }
}

int64_t PassAccounting::Expected(Bucket bucket) const {
  const auto i = static_cast<size_t>(bucket.lhs) * static_cast<size_t>(num_rhs_) +
                 static_cast<size_t>(bucket.rhs);
  return EdgeChunkRange((*bucket_edges_)[i], position_.edge_chunk, position_.num_edge_chunks)
      .size();
}

std::vector<Bucket> PassAccounting::EmptyBuckets() const {
  std::vector<Bucket> empty;
  const int num_lhs = static_cast<int>(bucket_edges_->size()) / num_rhs_;
  for (int lhs = 0; lhs < num_lhs; ++lhs) {
    for (int rhs = 0; rhs < num_rhs_; ++rhs) {
      if (Expected({lhs, rhs}) == 0) empty.push_back({lhs, rhs});
    }
  }
  return empty;
}

absl::Status PassAccounting::Check(const BucketStats& bucket) const {
  const int64_t expected = Expected(bucket.bucket);
  if (bucket.trained_edges >= 0 && bucket.held_out_edges >= 0 &&
      bucket.trained_edges + bucket.held_out_edges == expected) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("bucket (", bucket.bucket.lhs, ", ", bucket.bucket.rhs, ") of pass ",
                   position_.pass, ": trained ", bucket.trained_edges, " and held out ",
                   bucket.held_out_edges, " edges, but it has ", expected, " in edge chunk ",
                   position_.edge_chunk + 1, " of ", position_.num_edge_chunks));
}

int64_t EdgesBeforePass(const std::vector<std::vector<int64_t>>& bucket_edges,
                        const PassPosition& position) {
  int64_t epoch = 0;
  int64_t before = 0;
  for (size_t path = 0; path < bucket_edges.size(); ++path) {
    for (const int64_t edges : bucket_edges[path]) {
      epoch += edges;
      if (path < static_cast<size_t>(position.edge_path)) before += edges;
      if (path != static_cast<size_t>(position.edge_path)) continue;
      before += EdgeChunkRange(edges, position.edge_chunk, position.num_edge_chunks).begin;
    }
  }
  return position.epoch * epoch + before;
}

}  // namespace weft
