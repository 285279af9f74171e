// PackedEdges is a list of edges in memory, one record an edge: what is looked up at random lies in
// one cache line, on huge pages.
//
// A record is lhs, rhs, then the relation and the weight where the list has them.
// Thread-safety: concurrent reads are fine.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "services/common/check.h"
#include "services/common/float_block.h"
#include "services/common/types.h"

namespace weft {

struct Edge {
  EntityOffset lhs = 0;
  EntityOffset rhs = 0;
  RelationTypeId rel = 0;
  float weight = 1;

  auto operator<=>(const Edge&) const = default;
};

class PackedEdges {
 public:
  // Empty, without room.
  PackedEdges() = default;
  // Room for `capacity` edges; pages are taken as they are filled. Without relations, all edges
  // have relation 0; unweighted ones weigh 1.
  PackedEdges(int64_t capacity, bool with_relations, bool weighted)
      : with_relations_(with_relations),
        weighted_(weighted),
        words_(2 + (with_relations ? 1 : 0) + (weighted ? 1 : 0)),
        memory_(capacity, words_) {}

  int64_t size() const { return size_; }
  int64_t capacity() const { return memory_.rows(); }
  int64_t bytes() const { return size_ * words_ * 4; }
  bool with_relations() const { return with_relations_; }
  bool weighted() const { return weighted_; }

  void Append(const Edge& edge) {
    WEFT_DCHECK(size_ < capacity());
    Set(size_++, edge);
  }

  Edge operator[](int64_t i) const {
    const int32_t* const record = Record(i);
    Edge edge{record[0], record[1], 0, 1};
    if (with_relations_) edge.rel = record[2];
    if (weighted_) edge.weight = std::bit_cast<float>(record[words_ - 1]);
    return edge;
  }

  void Swap(int64_t a, int64_t b) {
    for (int w = 0; w < words_; ++w) std::swap(Record(a)[w], Record(b)[w]);
  }

  // Begins to bring an edge into the cache.
  void Prefetch(int64_t i) const { __builtin_prefetch(Record(i)); }

 private:
  void Set(int64_t i, const Edge& edge) {
    int32_t* const record = Record(i);
    record[0] = edge.lhs;
    record[1] = edge.rhs;
    if (with_relations_) record[2] = edge.rel;
    if (weighted_) record[words_ - 1] = std::bit_cast<int32_t>(edge.weight);
  }

  // The block is memory only: nobody reads or writes it as floats.
  int32_t* Record(int64_t i) { return reinterpret_cast<int32_t*>(memory_.data()) + i * words_; }
  const int32_t* Record(int64_t i) const {
    return reinterpret_cast<const int32_t*>(memory_.data()) + i * words_;
  }

  bool with_relations_ = false;
  bool weighted_ = false;
  int words_ = 2;
  int64_t size_ = 0;
  FloatBlock memory_;  // [capacity, words]
};

}  // namespace weft
