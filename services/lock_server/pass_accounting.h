// PassAccounting holds a pass to the edge: how many edges each bucket has in this pass's edge
// chunk, and that what a trainer reports, trained and held out, adds up to exactly that.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "services/common/run_stats.h"
#include "services/common/types.h"
#include "services/lock_server/lock_client.h"

namespace weft {

class PassAccounting {
 public:
  // `bucket_edges`: of all chunks, [lhs partition, rhs partition]; must outlive this object.
  PassAccounting(const std::vector<int64_t>& bucket_edges, int num_rhs,
                 const PassPosition& position);

  int64_t Expected(Bucket bucket) const;
  // Buckets without an edge in this pass, by lhs, then rhs partition.
  std::vector<Bucket> EmptyBuckets() const;
  int64_t expected_edges() const { return expected_edges_; }

  // Errors: DataLoss when the edges of a bucket do not add up.
  absl::Status Check(const BucketStats& bucket) const;

 private:
  const std::vector<int64_t>* const bucket_edges_;
  const int num_rhs_;
  const PassPosition position_;
  int64_t expected_edges_ = 0;
};

// The edges of all passes before this one.
int64_t EdgesBeforePass(const std::vector<std::vector<int64_t>>& bucket_edges,
                        const PassPosition& position);

}  // namespace weft
