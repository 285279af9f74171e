#include "benchmarks/bench_roofline.h"

#include <time.h>

#include <algorithm>
#include <barrier>
#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include "services/common/float_block.h"
#include "services/trainer/kernels/cpu.h"
#include "services/trainer/kernels/gemm.h"
#include "services/trainer/kernels/row_block.h"

namespace weft::bench {
namespace {

enum Product { kScores, kQueryGradients, kCandidateGradients, kNumProducts };

struct Operands {
  FloatBlock queries, candidates, scores, query_grads, candidate_grads;

  explicit Operands(const StepShape& s)
      : queries(s.positives, RowStride(s.dimension)),
        candidates(s.candidates, RowStride(s.dimension)),
        scores(s.positives, RowStride(s.candidates)),
        query_grads(s.positives, RowStride(s.dimension)),
        candidate_grads(s.candidates, RowStride(s.dimension)) {
    int i = 0;
    for (FloatBlock* block : {&queries, &candidates, &scores}) {
      for (float& x : block->span()) x = static_cast<float>(++i % 17) / 17 - 0.5f;
    }
  }
};

void Multiply(Gemm* gemm, GemmMethod method, Product product, const StepShape& s, Operands* o) {
  const int64_t m = s.positives;
  const int64_t k = s.candidates;
  const int64_t d = s.dimension;
  const int64_t ds = o->queries.cols();
  const int64_t ks = o->scores.cols();
  switch (product) {
    case kScores:
      return gemm->MultiplyBy(method,
                              {.transpose_b = true,
                               .m = m,
                               .n = k,
                               .k = d,
                               .a_stride = ds,
                               .b_stride = ds,
                               .c_stride = ks},
                              o->queries.data(), o->candidates.data(), o->scores.data());
    case kQueryGradients:
      return gemm->MultiplyBy(
          method, {.m = m, .n = d, .k = k, .a_stride = ks, .b_stride = ds, .c_stride = ds},
          o->scores.data(), o->candidates.data(), o->query_grads.data());
    case kCandidateGradients:
    case kNumProducts:
      return gemm->MultiplyBy(method,
                              {.transpose_a = true,
                               .m = k,
                               .n = d,
                               .k = m,
                               .a_stride = ks,
                               .b_stride = ds,
                               .c_stride = ds},
                              o->scores.data(), o->queries.data(), o->candidate_grads.data());
  }
}

// The best of several rounds of one product by one method, in seconds a call and thread.
double SecondsPerCall(GemmMethod method, Product product, const StepShape& shape, int threads) {
  constexpr int kRounds = 8;
  const double flops =
      2.0 * static_cast<double>(shape.positives * shape.candidates * shape.dimension);
  const int calls = std::max(3, static_cast<int>(1.5e9 / flops));  // about 15 ms
  std::vector<double> worst(kRounds, 0);
  std::vector<std::vector<double>> times(static_cast<size_t>(threads));
  std::barrier barrier(threads);
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      UseOneOpenMpThread();
      Gemm gemm;
      Operands operands(shape);
      Multiply(&gemm, method, product, shape, &operands);
      for (int round = 0; round < kRounds; ++round) {
        barrier.arrive_and_wait();
        const double start = ThreadCpuSeconds();
        for (int i = 0; i < calls; ++i) Multiply(&gemm, method, product, shape, &operands);
        times[t].push_back((ThreadCpuSeconds() - start) / calls);
      }
    });
  }
  workers.clear();
  for (const std::vector<double>& mine : times) {
    for (int round = 0; round < kRounds; ++round) {
      worst[round] = std::max(worst[round], mine[round]);
    }
  }
  return *std::ranges::min_element(worst);
}

}  // namespace

double ThreadCpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double RooflineGflops(const StepShape& shape, int threads) {
  using Key = std::tuple<int64_t, int64_t, int64_t, int>;
  static std::map<Key, double> known;
  const Key key{shape.positives, shape.candidates, shape.dimension, threads};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  double seconds = 0;
  for (const Product product : {kScores, kQueryGradients, kCandidateGradients}) {
    seconds += std::min(SecondsPerCall(GemmMethod::kSgemm, product, shape, threads),
                        SecondsPerCall(GemmMethod::kPrimitive, product, shape, threads));
  }
  const double flops =
      3 * 2.0 * static_cast<double>(shape.positives * shape.candidates * shape.dimension);
  return known[key] = flops / seconds * threads * 1e-9;
}

}  // namespace weft::bench
