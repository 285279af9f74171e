// Edge chunks: pass k of `num_edge_chunks` visits edges [begin, end) of every bucket.
//
// The same rule wherever it is asked: whoever counts a pass's edges and whoever trains them agree
// to the edge. The chunks of a bucket cover it exactly once, in order, and differ in size by one at
// most; a bucket with fewer edges than chunks has empty ones.
#pragma once

#include <cstdint>

namespace weft {

struct EdgeRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const EdgeRange&) const = default;
};

// 0 <= chunk < num_chunks.
constexpr EdgeRange EdgeChunkRange(int64_t num_edges, int chunk, int num_chunks) {
  // The quotient and the remainder apart, so that no product overflows.
  const int64_t quotient = num_edges / num_chunks;
  const int64_t remainder = num_edges % num_chunks;
  auto boundary = [&](int64_t i) { return i * quotient + i * remainder / num_chunks; };
  return {boundary(chunk), boundary(chunk + 1)};
}

}  // namespace weft
