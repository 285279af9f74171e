// What the benchmarks of single kernels count beside their time.
#pragma once

#include <benchmark/benchmark.h>

#include "benchmarks/bench_roofline.h"

namespace weft::bench {

// edges/s: how many edges a second this kernel alone would allow, where a step has `edges` for the
// `cpu_seconds` (of one thread) that were measured. share: that, of what the GEMM roofline of the
// step's shapes allows; kernels that are no GEMMs should be well above 1.
inline void CountEdges(benchmark::State& state, const StepShape& shape, double edges,
                       double cpu_seconds) {
  const double per_second = edges / cpu_seconds;
  state.counters["edges/s"] = per_second;
  state.counters["share"] =
      per_second * shape.FlopsPerEdge() / (RooflineGflops(shape, /*threads=*/1) * 1e9);
}

}  // namespace weft::bench
