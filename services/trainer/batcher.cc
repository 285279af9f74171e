#include "services/trainer/batcher.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "services/common/check.h"
#include "services/common/random.h"

namespace weft {
namespace {

// Draws an index in proportion to its weight, where weights shrink: a Fenwick tree of partial sums.
class WeightedDraw {
 public:
  explicit WeightedDraw(const std::vector<int64_t>& weights) : tree_(weights.size() + 1) {
    for (size_t i = 0; i < weights.size(); ++i) tree_[i + 1] = weights[i];
    for (size_t i = 1; i < tree_.size(); ++i) {
      const size_t parent = i + (i & (~i + 1));
      if (parent < tree_.size()) tree_[parent] += tree_[i];
    }
  }

  // The index that holds unit `unit` of the total weight.
  size_t Find(int64_t unit) const {
    size_t at = 0;
    for (size_t step = std::bit_floor(tree_.size()); step > 0; step /= 2) {
      if (at + step < tree_.size() && tree_[at + step] <= unit) {
        at += step;
        unit -= tree_[at];
      }
    }
    return at;
  }

  void Subtract(size_t index, int64_t amount) {
    for (size_t i = index + 1; i < tree_.size(); i += i & (~i + 1)) tree_[i] -= amount;
  }

 private:
  std::vector<int64_t> tree_;
};

uint64_t Where(Bucket bucket) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(bucket.lhs)) << 32) |
         static_cast<uint32_t>(bucket.rhs);
}

}  // namespace

BatchColumns::BatchColumns(int64_t batch_size)
    : lhs_(static_cast<size_t>(batch_size)),
      rhs_(static_cast<size_t>(batch_size)),
      rel_(static_cast<size_t>(batch_size)),
      weight_(static_cast<size_t>(batch_size)),
      positions_(static_cast<size_t>(batch_size)) {}

Batcher Batcher::Shuffled(const GroupedEdges& edges, const Options& options) {
  Batcher batcher(edges, options.batch_size);
  const auto pass = static_cast<uint64_t>(options.pass);
  std::vector<int64_t> left;
  int64_t total = 0;
  for (const GroupedEdges::Group& group : edges.groups) {
    const uint64_t when = (pass << 32) | static_cast<uint32_t>(group.relation);
    batcher.permutations_.emplace_back(
        static_cast<uint64_t>(group.size()),
        RandomStream(options.seed, RandomUse::kEdgeOrder, Where(options.bucket), when));
    left.push_back(group.size());
    total += group.size();
  }
  RandomStream random(options.seed, RandomUse::kBatchRelation, Where(options.bucket), pass);
  WeightedDraw draw(left);
  while (total > 0) {
    const size_t g = left.size() == 1 ? 0 : draw.Find(static_cast<int64_t>(random.Below64(total)));
    const int64_t size = std::min(left[g], options.batch_size);
    batcher.batches_.push_back({static_cast<int32_t>(g), edges.groups[g].size() - left[g]});
    draw.Subtract(g, size);
    left[g] -= size;
    total -= size;
  }
  return batcher;
}

Batcher Batcher::InOrder(const GroupedEdges& edges, int64_t batch_size) {
  Batcher batcher(edges, batch_size);
  for (size_t g = 0; g < edges.groups.size(); ++g) {
    for (int64_t offset = 0; offset < edges.groups[g].size(); offset += batch_size) {
      batcher.batches_.push_back({static_cast<int32_t>(g), offset});
    }
  }
  return batcher;
}

int64_t Batcher::batch_edges(int64_t batch) const {
  const BatchStart& start = batches_[batch];
  return std::min(batch_size_, edges_->groups[start.group].size() - start.offset);
}

void Batcher::Gather(int64_t batch, BatchColumns* columns) const {
  const BatchStart& start = batches_[batch];
  const GroupedEdges::Group& group = edges_->groups[start.group];
  const auto n = static_cast<size_t>(batch_edges(batch));
  WEFT_DCHECK(n <= columns->lhs_.size());
  const PackedEdges& edges = edges_->edges;
  int64_t* const positions = columns->positions_.data();

  if (permutations_.empty()) {
    std::iota(positions, positions + n, group.begin + start.offset);
  } else {
    // The edges of a batch lie far apart: ask for all of them before the first one is needed.
    const IndexPermutation& permutation = permutations_[start.group];
    for (size_t i = 0; i < n; ++i) {
      positions[i] =
          group.begin + static_cast<int64_t>(permutation(static_cast<uint64_t>(start.offset) + i));
      edges.Prefetch(positions[i]);
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const Edge edge = edges[positions[i]];
    columns->lhs_[i] = edge.lhs;
    columns->rhs_[i] = edge.rhs;
    columns->rel_[i] = edge.rel;
    columns->weight_[i] = edge.weight;
  }
  columns->batch_ = {{columns->lhs_.data(), n},
                     {columns->rhs_.data(), n},
                     {columns->rel_.data(), n},
                     {columns->weight_.data(), edges.weighted() ? n : 0},
                     group.featurized[0] ? &edges_->bags[0] : nullptr,
                     group.featurized[1] ? &edges_->bags[1] : nullptr};
}

}  // namespace weft
