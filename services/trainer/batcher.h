// Batcher cuts the edges of a bucket into batches and gathers them.
//
// Which edges are in batch b, and in which order, is a function of (seed, pass, bucket, b) and the
// edges: workers may gather any batch at any time, in parallel, and nothing is shuffled beforehand.
// Dynamic relations: a batch mixes relations. Static ones: a batch has edges of one relation,
// drawn in proportion to the edges that each has left. Batches are full but for the last one of
// each group.
//
// Thread-safety: constant after construction. The edges must outlive the batcher.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/types.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/bucket_edges.h"
#include "services/trainer/index_permutation.h"

namespace weft {

// The columns of one batch, reused from batch to batch; owned by a worker.
class BatchColumns {
 public:
  explicit BatchColumns(int64_t batch_size);

  // Borrowed from this object until the next gather.
  const EdgeBatch& batch() const { return batch_; }

 private:
  friend class Batcher;

  EdgeBatch batch_;
  std::vector<EntityOffset> lhs_;
  std::vector<EntityOffset> rhs_;
  std::vector<RelationTypeId> rel_;
  std::vector<float> weight_;
  std::vector<int64_t> positions_;  // of the batch's edges in the edge list
};

class Batcher {
 public:
  struct Options {
    int64_t batch_size = 1000;  // >= 1
    uint64_t seed = 0;
    int64_t pass = 0;
    Bucket bucket;
  };

  // Batches in random order of edges, for training.
  static Batcher Shuffled(const GroupedEdges& edges, const Options& options);
  // Batches in the order of the edges, group after group, for evaluation.
  static Batcher InOrder(const GroupedEdges& edges, int64_t batch_size);

  int64_t num_batches() const { return static_cast<int64_t>(batches_.size()); }
  // The relation of a batch; 0 for dynamic relations.
  RelationTypeId relation(int64_t batch) const {
    return edges_->groups[batches_[batch].group].relation;
  }
  int64_t batch_edges(int64_t batch) const;

  // Fills `columns`, which was made for at least this batch size.
  void Gather(int64_t batch, BatchColumns* columns) const;

 private:
  struct BatchStart {
    int32_t group = 0;
    int64_t offset = 0;  // in its group
  };

  Batcher(const GroupedEdges& edges, int64_t batch_size)
      : edges_(&edges), batch_size_(batch_size) {}

  const GroupedEdges* edges_;
  int64_t batch_size_;
  std::vector<BatchStart> batches_;
  std::vector<IndexPermutation> permutations_;  // by group; empty: in order
};

}  // namespace weft
