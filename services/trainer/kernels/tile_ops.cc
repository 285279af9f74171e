#include "services/trainer/kernels/tile_ops.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "services/trainer/kernels/tile_ops.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "services/trainer/kernels/simd-inl.h"
#include "services/trainer/kernels/vector_ops.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {

// Below this share of |a|^2 + |b|^2, d2 keeps fewer than about 19 correct bits.
constexpr float kCloseShare = 0.1f;

void AddBiasesImpl(const float* row_biases, const float* col_biases, const Tile& scores) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < scores.rows; ++j) {
    const Vec bias = hn::Set(d, row_biases[j]);
    float* row = scores.row(j);
    for (int64_t i = 0; i < scores.cols; i += lanes) {
      const Vec sum = hn::Add(bias, hn::LoadU(d, col_biases + i));
      hn::StoreU(hn::Add(hn::LoadU(d, row + i), sum), d, row + i);
    }
  }
}

// Distances of one row. Close pairs are marked by a positive score: all others are <= 0 or NaN.
template <bool kSquared>
HWY_INLINE bool FinishRow(float* row, int64_t cols, float a_norm, const float* b_norms) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec norm = hn::Set(d, a_norm);
  const Vec minus_two = hn::Set(d, -2.0f);
  const Vec share = hn::Set(d, kCloseShare);
  bool any = false;
  for (int64_t i = 0; i < cols; i += lanes) {
    const Vec norms = hn::Add(norm, hn::LoadU(d, b_norms + i));
    const Vec d2 = hn::MulAdd(minus_two, hn::LoadU(d, row + i), norms);
    const auto columns = hn::FirstN(d, static_cast<size_t>(cols - i));
    const auto close = hn::And(columns, hn::Le(d2, hn::Mul(share, norms)));
    const Vec score = kSquared ? hn::Neg(d2) : hn::Neg(hn::Sqrt(d2));
    any |= !hn::AllFalse(d, close);
    hn::StoreU(hn::IfThenElse(close, hn::Set(d, 1.0f), score), d, row + i);
  }
  return any;
}

void FinishDistancesImpl(const RowBlock& a, const RowBlock& b, int64_t skip, const float* a_norms,
                         const float* b_norms, bool squared, const Tile& scores,
                         std::vector<TilePair>* close) {
  for (int64_t j = 0; j < scores.rows; ++j) {
    float* row = scores.row(j);
    const bool any = squared ? FinishRow<true>(row, scores.cols, a_norms[j], b_norms)
                             : FinishRow<false>(row, scores.cols, a_norms[j], b_norms);
    if (!any) continue;
    for (int64_t i = 0; i < scores.cols; ++i) {
      if (!(row[i] > 0)) continue;
      const float d2 = SquaredDistance(a.row(j), b.row(i), a.dim, skip);
      row[i] = squared ? -d2 : -std::sqrt(std::max(d2, 1e-30f));
      close->push_back({static_cast<int32_t>(j), static_cast<int32_t>(i)});
    }
  }
}

void DistanceWeightsImpl(const Tile& scores, bool squared, const Tile& grads) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec clamp = hn::Set(d, -1.0000001e-15f);
  for (int64_t j = 0; j < grads.rows; ++j) {
    float* g = grads.row(j);
    for (int64_t i = 0; i < grads.cols; i += lanes) {
      const Vec grad = hn::LoadU(d, g + i);
      if (squared) {
        hn::StoreU(hn::Add(grad, grad), d, g + i);
      } else {
        const Vec score = hn::LoadU(d, scores.row(j) + i);
        const Vec weight = hn::Neg(hn::Div(grad, score));
        hn::StoreU(hn::IfThenElseZero(hn::Lt(score, clamp), weight), d, g + i);
      }
    }
  }
}

// The 4 x 4 block at src, transposed.
struct Block4 {
  hn::Vec<hn::CappedTag<float, 4>> row[4];
};

#if HWY_TARGET != HWY_SCALAR
HWY_INLINE Block4 LoadTransposed(const float* src, int64_t stride) {
  const hn::CappedTag<float, 4> d;
  const auto r0 = hn::LoadU(d, src);
  const auto r1 = hn::LoadU(d, src + stride);
  const auto r2 = hn::LoadU(d, src + 2 * stride);
  const auto r3 = hn::LoadU(d, src + 3 * stride);
  const auto even_low = hn::InterleaveLower(d, r0, r2);
  const auto even_high = hn::InterleaveUpper(d, r0, r2);
  const auto odd_low = hn::InterleaveLower(d, r1, r3);
  const auto odd_high = hn::InterleaveUpper(d, r1, r3);
  return {{hn::InterleaveLower(d, even_low, odd_low), hn::InterleaveUpper(d, even_low, odd_low),
           hn::InterleaveLower(d, even_high, odd_high),
           hn::InterleaveUpper(d, even_high, odd_high)}};
}
constexpr int64_t kBlock = 4;
#else
constexpr int64_t kBlock = 1;
HWY_INLINE Block4 LoadTransposed(const float* src, int64_t) {
  return {{hn::LoadU(hn::CappedTag<float, 4>(), src), {}, {}, {}}};
}
#endif

void TransposeTileImpl(const Tile& src, const Tile& dst) {
  const hn::CappedTag<float, 4> d;
  const int64_t rows = src.rows / kBlock * kBlock;
  const int64_t cols = src.cols / kBlock * kBlock;
  for (int64_t i = 0; i < rows; i += kBlock) {
    for (int64_t j = 0; j < cols; j += kBlock) {
      const Block4 block = LoadTransposed(&src.at(i, j), src.stride);
      for (int64_t r = 0; r < kBlock; ++r) hn::StoreU(block.row[r], d, &dst.at(j + r, i));
    }
    for (int64_t j = cols; j < src.cols; ++j) {
      for (int64_t r = 0; r < kBlock; ++r) dst.at(j, i + r) = src.at(i + r, j);
    }
  }
  for (int64_t i = rows; i < src.rows; ++i) {
    for (int64_t j = 0; j < src.cols; ++j) dst.at(j, i) = src.at(i, j);
  }
}

void AddTransposedImpl(const Tile& a, const Tile& b) {
  const hn::CappedTag<float, 4> d;
  const int64_t n = a.rows / kBlock * kBlock;
  auto add_one = [&a, &b](int64_t i, int64_t j) {
    a.at(i, j) += b.at(j, i);
    b.at(j, i) = a.at(i, j);
  };
  for (int64_t i = 0; i < n; i += kBlock) {
    for (int64_t j = 0; j < n; j += kBlock) {
      const Block4 other = LoadTransposed(&b.at(j, i), b.stride);
      for (int64_t r = 0; r < kBlock; ++r) {
        float* to = &a.at(i + r, j);
        hn::StoreU(hn::Add(hn::LoadU(d, to), other.row[r]), d, to);
      }
      const Block4 sum = LoadTransposed(&a.at(i, j), a.stride);
      for (int64_t r = 0; r < kBlock; ++r) hn::StoreU(sum.row[r], d, &b.at(j + r, i));
    }
    for (int64_t j = n; j < a.rows; ++j) {
      for (int64_t r = 0; r < kBlock; ++r) add_one(i + r, j);
    }
  }
  for (int64_t i = n; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.rows; ++j) add_one(i, j);
  }
}

void TileRowSumsImpl(const Tile& tile, float* out) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < tile.rows; ++j) {
    const float* row = tile.row(j);
    Vec sum = hn::Zero(d);
    for (int64_t i = 0; i < tile.cols; i += lanes) {
      const auto columns = hn::FirstN(d, static_cast<size_t>(tile.cols - i));
      sum = hn::Add(sum, hn::IfThenElseZero(columns, hn::LoadU(d, row + i)));
    }
    out[j] = Sum(sum);
  }
}

void TileColumnSumsImpl(const Tile& tile, float* out) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < tile.cols; i += lanes) {
    Vec sum = hn::Zero(d);
    for (int64_t j = 0; j < tile.rows; ++j) sum = hn::Add(sum, hn::LoadU(d, tile.row(j) + i));
    hn::StoreU(sum, d, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft {

HWY_EXPORT(AddBiasesImpl);
HWY_EXPORT(FinishDistancesImpl);
HWY_EXPORT(DistanceWeightsImpl);
HWY_EXPORT(TransposeTileImpl);
HWY_EXPORT(AddTransposedImpl);
HWY_EXPORT(TileRowSumsImpl);
HWY_EXPORT(TileColumnSumsImpl);

void TransposeTile(const Tile& src, const Tile& dst) {
  HWY_DYNAMIC_DISPATCH(TransposeTileImpl)(src, dst);
}

void AddTransposed(const Tile& a, const Tile& b) { HWY_DYNAMIC_DISPATCH(AddTransposedImpl)(a, b); }

void AddBiases(const float* row_biases, const float* col_biases, const Tile& scores) {
  HWY_DYNAMIC_DISPATCH(AddBiasesImpl)(row_biases, col_biases, scores);
}

void FinishDistances(const RowBlock& a, const RowBlock& b, int64_t skip, const float* a_norms,
                     const float* b_norms, bool squared, const Tile& scores,
                     std::vector<TilePair>* close) {
  HWY_DYNAMIC_DISPATCH(FinishDistancesImpl)(a, b, skip, a_norms, b_norms, squared, scores, close);
}

void DistanceWeights(const Tile& scores, bool squared, const Tile& grads) {
  HWY_DYNAMIC_DISPATCH(DistanceWeightsImpl)(scores, squared, grads);
}

void TileRowSums(const Tile& tile, float* out) { HWY_DYNAMIC_DISPATCH(TileRowSumsImpl)(tile, out); }

void TileColumnSums(const Tile& tile, float* out) {
  HWY_DYNAMIC_DISPATCH(TileColumnSumsImpl)(tile, out);
}

}  // namespace weft
#endif  // HWY_ONCE
