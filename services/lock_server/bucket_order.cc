#include "services/lock_server/bucket_order.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "services/common/check.h"
#include "services/common/random.h"

namespace weft {
namespace {

RandomStream OrderStream(uint64_t seed, int64_t pass) {
  return RandomStream(seed, RandomUse::kBucketOrder, static_cast<uint64_t>(pass));
}

// Fisher and Yates. std::shuffle's result depends on the standard library.
template <typename T>
void Shuffle(std::span<T> items, RandomStream& random) {
  for (size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1], items[random.Below(static_cast<uint32_t>(i))]);
  }
}

std::vector<Bucket> AllBuckets(int num_lhs, int num_rhs) {
  std::vector<Bucket> buckets;
  buckets.reserve(static_cast<size_t>(num_lhs) * static_cast<size_t>(num_rhs));
  for (int lhs = 0; lhs < num_lhs; ++lhs) {
    for (int rhs = 0; rhs < num_rhs; ++rhs) buckets.push_back({lhs, rhs});
  }
  return buckets;
}

std::vector<Bucket> RandomOrder(int num_lhs, int num_rhs, RandomStream& random) {
  std::vector<Bucket> buckets = AllBuckets(num_lhs, num_rhs);
  Shuffle(std::span(buckets), random);
  return buckets;
}

// A walk over buckets that share partitions. Every bucket stands in three shuffled stacks (all, its
// lhs partition's, its rhs partition's); those visited meanwhile are skipped when they come up.
class AffinityWalk {
 public:
  AffinityWalk(int num_lhs, int num_rhs, RandomStream& random)
      : num_lhs_(num_lhs),
        num_rhs_(num_rhs),
        random_(random),
        visited_(static_cast<size_t>(num_lhs) * static_cast<size_t>(num_rhs)),
        any_(RandomOrder(num_lhs, num_rhs, random)),
        of_partition_(static_cast<size_t>(std::max(num_lhs, num_rhs))) {
    for (const Bucket& b : any_) {
      of_partition_[static_cast<size_t>(b.lhs)].push_back(b);
      of_partition_[static_cast<size_t>(b.rhs)].push_back(b);
    }
    for (auto& stack : of_partition_) Shuffle(std::span(stack), random_);
  }

  std::vector<Bucket> Run() {
    while (order_.size() < visited_.size()) {
      // One of a neighbour's stacks, by their sizes; when they are exhausted, anywhere.
      Bucket next;
      if (order_.empty() || !PopNeighbour(order_.back(), &next)) {
        const bool found = Pop(&any_, &next);
        WEFT_CHECK(found);
      }
      Visit(next);
      const Bucket transpose = {next.rhs, next.lhs};
      if (transpose.lhs < num_lhs_ && transpose.rhs < num_rhs_ && !Visited(transpose)) {
        Visit(transpose);
      }
    }
    return std::move(order_);
  }

 private:
  size_t Index(const Bucket& b) const {
    return static_cast<size_t>(b.lhs) * static_cast<size_t>(num_rhs_) + static_cast<size_t>(b.rhs);
  }
  bool Visited(const Bucket& b) const { return visited_[Index(b)]; }
  void Visit(const Bucket& b) {
    visited_[Index(b)] = true;
    order_.push_back(b);
  }

  // The topmost bucket not yet visited.
  bool Pop(std::vector<Bucket>* stack, Bucket* out) {
    while (!stack->empty()) {
      *out = stack->back();
      stack->pop_back();
      if (!Visited(*out)) return true;
    }
    return false;
  }

  bool PopNeighbour(const Bucket& b, Bucket* out) {
    std::vector<Bucket>& left = of_partition_[static_cast<size_t>(b.lhs)];
    std::vector<Bucket>& right = of_partition_[static_cast<size_t>(b.rhs)];
    while (!left.empty() || !right.empty()) {
      const size_t pick = random_.Below(static_cast<uint32_t>(left.size() + right.size()));
      std::vector<Bucket>& stack = pick < left.size() ? left : right;
      *out = stack.back();
      stack.pop_back();
      if (!Visited(*out)) return true;
    }
    return false;
  }

  const int num_lhs_;
  const int num_rhs_;
  RandomStream& random_;
  std::vector<bool> visited_;
  std::vector<Bucket> any_;
  std::vector<std::vector<Bucket>> of_partition_;
  std::vector<Bucket> order_;
};

void AppendLayer(int layer, int num_lhs, int num_rhs, RandomStream& random,
                 std::vector<Bucket>* order) {
  std::vector<int> others(static_cast<size_t>(std::max(num_lhs, num_rhs) - layer));
  std::iota(others.begin(), others.end(), layer);
  Shuffle(std::span(others), random);
  for (const int other : others) {
    Bucket pair[2] = {{other, layer}, {layer, other}};
    if (random.Below(2) == 1) std::swap(pair[0], pair[1]);
    for (const Bucket& b : pair) {
      const bool exists = b.lhs < num_lhs && b.rhs < num_rhs;
      if (exists && !(other == layer && &b == &pair[1])) order->push_back(b);
    }
  }
}

std::vector<Bucket> LayerOrder(bool inside_out, int num_lhs, int num_rhs, RandomStream& random) {
  std::vector<Bucket> order;
  order.reserve(static_cast<size_t>(num_lhs) * static_cast<size_t>(num_rhs));
  const int num_layers = std::min(num_lhs, num_rhs);
  for (int i = 0; i < num_layers; ++i) {
    AppendLayer(inside_out ? num_layers - 1 - i : i, num_lhs, num_rhs, random, &order);
  }
  return order;
}

}  // namespace

std::vector<Bucket> MakeBucketOrder(BucketOrder order, int num_lhs, int num_rhs, uint64_t seed,
                                    int64_t pass) {
  RandomStream random = OrderStream(seed, pass);
  switch (order) {
    case BucketOrder::kRandom:
      return RandomOrder(num_lhs, num_rhs, random);
    case BucketOrder::kAffinity:
      return AffinityWalk(num_lhs, num_rhs, random).Run();
    case BucketOrder::kInsideOut:
      return LayerOrder(true, num_lhs, num_rhs, random);
    case BucketOrder::kOutsideIn:
      return LayerOrder(false, num_lhs, num_rhs, random);
  }
  WEFT_CHECK(false);
}

std::vector<Bucket> MakeBetaOrder(int num_partitions, int resident, uint64_t seed, int64_t pass) {
  WEFT_CHECK(resident >= 2);
  RandomStream random = OrderStream(seed, pass);
  std::vector<int> waiting(static_cast<size_t>(num_partitions));  // not in memory, not finished
  std::iota(waiting.begin(), waiting.end(), 0);
  Shuffle(std::span(waiting), random);

  std::vector<Bucket> order;
  order.reserve(static_cast<size_t>(num_partitions) * static_cast<size_t>(num_partitions));
  std::vector<bool> diagonal_done(static_cast<size_t>(num_partitions));
  std::vector<int> memory;
  // All buckets of `arriving` with what is in memory.
  auto meet = [&](int arriving) {
    if (!diagonal_done[static_cast<size_t>(arriving)]) order.push_back({arriving, arriving});
    diagonal_done[static_cast<size_t>(arriving)] = true;
    for (const int other : memory) {
      if (other == arriving) continue;
      order.push_back({arriving, other});
      order.push_back({other, arriving});
    }
  };
  const auto places = static_cast<size_t>(resident);
  while (!waiting.empty()) {
    while (!waiting.empty() && memory.size() < places) {
      const int arriving = waiting.back();
      waiting.pop_back();
      meet(arriving);
      memory.push_back(arriving);
    }
    // The last place is for those passing through; each comes back later to meet the others.
    for (int& passing : waiting) {
      const int arriving = passing;
      passing = memory.back();
      memory.pop_back();
      meet(arriving);
      memory.push_back(arriving);
    }
    // What stayed has met everybody. The last one to arrive stays for the next round.
    const int last = memory.back();
    memory.assign(1, last);
  }
  return order;
}

}  // namespace weft
