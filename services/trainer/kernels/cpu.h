// Which instructions the kernels use: the best that this CPU has, or fewer when the environment
// variable WEFT_CPU says so (sse4, avx2, avx512). Highway's and oneDNN's kernels are capped
// together; results are bit-equal only between runs of the same class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weft {

// Reads WEFT_CPU and applies it. Called by everything that starts using the kernels; the first call
// decides, later ones return the same. Any thread.
// Errors: InvalidArgument for a value that is none of the above, or that this CPU lacks.
absl::Status InitKernels();

// Keeps OpenMP, and so oneDNN, within the calling thread: HOGWILD workers are the parallelism, and
// OpenMP's thread count belongs to each thread.
void UseOneOpenMpThread();

// For tests: the vector instruction sets that the kernels were built for and this CPU has, best
// first, and a way to force one of them (in the whole process; 0 ends it).
struct VectorTarget {
  int64_t id = 0;
  std::string name;  // "AVX3"
};
std::vector<VectorTarget> SupportedVectorTargets();
void ForceVectorTarget(int64_t id);

}  // namespace weft
