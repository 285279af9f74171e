// The GEMM roofline of a step: how many edges a second the matrix products of its shapes alone
// would allow, all threads at once, with the better of oneDNN's two ways for each shape.
#pragma once

#include <cstdint>

namespace weft::bench {

// Products of one negative chunk and side: scores [m, k], from rows of dimension d, and the two
// gradients.
struct StepShape {
  int64_t positives = 50;    // m
  int64_t candidates = 100;  // k
  int64_t dimension = 100;   // d
  int64_t sides = 2;

  // Of an edge: three products a side, 2 m k d each, for m edges.
  double FlopsPerEdge() const {
    return static_cast<double>(sides * 3 * 2 * candidates * dimension);
  }
};

// Seconds that the calling thread had a processor. Shares of a roofline are taken from these, so
// that what else runs on a machine spoils them less.
double ThreadCpuSeconds();

// GFLOP/s over the three products, weighed as a step does them, on `threads` threads: of their
// processor time. Measured once for a shape and number of threads; takes about a second.
double RooflineGflops(const StepShape& shape, int threads);

}  // namespace weft::bench
