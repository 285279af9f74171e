// The matrix products of a step, by oneDNN's two ways and by block_gemm, for each shape: GFLOP/s,
// edges a second if all six products of a step went so, and the share of the roofline.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "benchmarks/bench_counters.h"
#include "services/common/float_block.h"
#include "services/trainer/kernels/block_gemm.h"
#include "services/trainer/kernels/cpu.h"
#include "services/trainer/kernels/gemm.h"
#include "services/trainer/kernels/row_block.h"

namespace weft::bench {
namespace {

// Positives, candidates, dimension: the default configuration, its shared part, and larger ones.
constexpr int64_t kShapes[][3] = {
    {50, 100, 100}, {50, 50, 100}, {50, 550, 200}, {50, 1050, 400}, {64, 768, 400}};

enum class Product { kScores, kQueryGradients, kCandidateGradients };
enum class Method { kSgemm, kPrimitive, kBlocks };

struct Operands {
  FloatBlock queries, transposed, candidates, scores, query_grads, candidate_grads;

  Operands(int64_t m, int64_t k, int64_t d)
      : queries(m + 3, RowStride(d)),
        transposed(PaddedDim(d), RowStride(m)),
        candidates(k, RowStride(d)),
        scores(k, RowStride(m)),
        query_grads(m, RowStride(d)),
        candidate_grads(k, RowStride(d)) {
    int i = 0;
    for (FloatBlock* block : {&queries, &candidates, &scores}) {
      for (float& x : block->span()) x = static_cast<float>(++i % 17) / 17 - 0.5f;
    }
  }
};

// A step keeps scores as [candidates, queries]; block_gemm wants the queries transposed, which is
// part of what is measured.
void Blocks(Product product, int64_t m, int64_t k, int64_t d, Operands* o) {
  const int64_t ds = o->queries.cols();
  const int64_t ms = o->scores.cols();
  BlockProduct p;
  switch (product) {
    case Product::kScores:
      TransposeRows({o->queries.data(), m, d, ds}, o->transposed.data(), ms);
      p = {.m = k,
           .n = m,
           .k = d,
           .a = o->candidates.data(),
           .a_row = ds,
           .a_col = 1,
           .b = o->transposed.data(),
           .b_stride = ms,
           .c = o->scores.data(),
           .c_stride = ms,
           .scattered = {}};
      break;
    case Product::kQueryGradients:
      p = {.m = m,
           .n = d,
           .k = k,
           .a = o->scores.data(),
           .a_row = 1,
           .a_col = ms,
           .b = o->candidates.data(),
           .b_stride = ds,
           .c = o->query_grads.data(),
           .c_stride = ds,
           .scattered = {}};
      break;
    case Product::kCandidateGradients:
      p = {.m = k,
           .n = d,
           .k = m,
           .a = o->scores.data(),
           .a_row = ms,
           .a_col = 1,
           .b = o->queries.data(),
           .b_stride = ds,
           .c = o->candidate_grads.data(),
           .c_stride = ds,
           .scattered = {}};
      break;
  }
  MultiplyBlocks(p);
}

void OneDnn(GemmMethod method, Product product, int64_t m, int64_t k, int64_t d, Gemm* gemm,
            Operands* o) {
  const int64_t ds = o->queries.cols();
  const int64_t ms = o->scores.cols();
  switch (product) {
    case Product::kScores:
      return gemm->MultiplyBy(method,
                              {.transpose_b = true,
                               .m = k,
                               .n = m,
                               .k = d,
                               .a_stride = ds,
                               .b_stride = ds,
                               .c_stride = ms},
                              o->candidates.data(), o->queries.data(), o->scores.data());
    case Product::kQueryGradients:
      return gemm->MultiplyBy(method,
                              {.transpose_a = true,
                               .m = m,
                               .n = d,
                               .k = k,
                               .a_stride = ms,
                               .b_stride = ds,
                               .c_stride = ds},
                              o->scores.data(), o->candidates.data(), o->query_grads.data());
    case Product::kCandidateGradients:
      return gemm->MultiplyBy(
          method, {.m = k, .n = d, .k = m, .a_stride = ms, .b_stride = ds, .c_stride = ds},
          o->scores.data(), o->queries.data(), o->candidate_grads.data());
  }
}

void BM_Product(benchmark::State& state, Product product, Method method, int64_t m, int64_t k,
                int64_t d) {
  UseOneOpenMpThread();
  Gemm gemm;
  Operands operands(m, k, d);
  const double start = ThreadCpuSeconds();
  for (auto _ : state) {
    if (method == Method::kBlocks) {
      Blocks(product, m, k, d, &operands);
    } else {
      OneDnn(method == Method::kSgemm ? GemmMethod::kSgemm : GemmMethod::kPrimitive, product, m, k,
             d, &gemm, &operands);
    }
    benchmark::ClobberMemory();
  }
  const double seconds = ThreadCpuSeconds() - start;
  const double flops = 2.0 * static_cast<double>(m * k * d * state.iterations());
  const StepShape shape{.positives = m, .candidates = k, .dimension = d};
  state.counters["GFLOP/s"] = 1e-9 * flops / seconds;
  CountEdges(state, shape, flops / shape.FlopsPerEdge(), seconds);
}

const bool registered = [] {
  const std::pair<const char*, Product> kProducts[] = {
      {"scores", Product::kScores},
      {"query_gradients", Product::kQueryGradients},
      {"candidate_gradients", Product::kCandidateGradients}};
  const std::pair<const char*, Method> kMethods[] = {
      {"sgemm", Method::kSgemm}, {"primitive", Method::kPrimitive}, {"blocks", Method::kBlocks}};
  for (const auto& [m, k, d] : kShapes) {
    for (const auto& [product_name, product] : kProducts) {
      for (const auto& [method_name, method] : kMethods) {
        benchmark::RegisterBenchmark(
            absl::StrCat(product_name, "_", m, "x", k, "x", d, "/", method_name).c_str(),
            [product = product, method = method, m = m, k = k, d = d](benchmark::State& state) {
              BM_Product(state, product, method, m, k, d);
            });
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace weft::bench

BENCHMARK_MAIN();
