// EmbeddingPartition is one partition of one entity type in memory: its vectors and, for each row,
// the sum of squared gradients of row-wise Adagrad.
#pragma once

#include <cstdint>

#include "services/common/float_block.h"

namespace weft {

struct EmbeddingPartition {
  FloatBlock embeddings;    // [count, dimension]
  FloatBlock adagrad_sums;  // [count, 1]

  EmbeddingPartition() = default;
  EmbeddingPartition(int64_t count, int64_t dimension)
      : embeddings(count, dimension), adagrad_sums(count, 1) {}

  int64_t count() const { return embeddings.rows(); }
  int64_t dimension() const { return embeddings.cols(); }
  EmbeddingPartition Clone() const {
    EmbeddingPartition copy;
    copy.embeddings = embeddings.Clone();
    copy.adagrad_sums = adagrad_sums.Clone();
    return copy;
  }
};

// A borrowed view of a partition, as the compute core sees it. Two views of the same partition have
// the same `embeddings` pointer: that is how a step knows that both sides share one table.
struct EmbeddingTable {
  float* embeddings = nullptr;    // [count, dimension]
  float* adagrad_sums = nullptr;  // [count]
  int64_t count = 0;
  int64_t dimension = 0;
  uint8_t* changed = nullptr;  // [count]; whoever writes a row marks it; nullptr: nobody asks
};

inline EmbeddingTable View(EmbeddingPartition& p) {
  return {p.embeddings.data(), p.adagrad_sums.data(), p.count(), p.dimension()};
}

// XXH3-64 of the vectors and the sums.
uint64_t Checksum(const EmbeddingPartition& partition);

}  // namespace weft
