#include "services/trainer/fused/row_transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"
#include "services/trainer/fused/arena.h"
#include "services/trainer/fused/batch_parameters.h"
#include "services/trainer/fused/built_in.h"
#include "services/trainer/fused/operator_parameters.h"
#include "services/trainer/fused/scoring.h"
#include "services/trainer/kernels/cpu.h"
#include "services/trainer/kernels/gemm.h"
#include "services/trainer/kernels/operator_ops.h"
#include "services/trainer/kernels/row_ops.h"
#include "services/trainer/kernels/vector_ops.h"

namespace weft {
namespace {

// Rows that are transformed together: always as many, so that a matrix gives each the same bits.
constexpr int64_t kRowsAtOnce = 64;

void CopyPadded(const float* from, int64_t dim, float* to) {
  std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(float));
  std::fill(to + dim, to + PaddedDim(dim), 0.0f);
}

}  // namespace

struct RowTransform::Impl {
  int64_t dim = 0;
  float max_norm = 0;
  Comparator comparator = Comparator::kDot;
  int64_t skip = 0;
  Operator op = Operator::kNone;
  FloatBlock operator_row;  // packed as in OperatorParameters
  FloatBlock global;        // padded; empty: none

  void ApplyOperator(const RowBlock& x, const RowBlock& out, Gemm* gemm) const;
  // Transforms x in place; the result is in x or in `other`, whichever is returned.
  RowBlock Transform(const RowBlock& x, const RowBlock& other, float* inverse_norms,
                     Gemm* gemm) const;
};

void RowTransform::Impl::ApplyOperator(const RowBlock& x, const RowBlock& out, Gemm* gemm) const {
  float* packed = const_cast<float*>(operator_row.data());
  const OperatorRows params{{packed, 1, dim, operator_row.cols()}};
  switch (op) {
    case Operator::kNone:
    case Operator::kCustom:
      return;
    case Operator::kTranslation:
      return Translate(x, params, out);
    case Operator::kDiagonal:
      return MultiplyDiagonal(x, params, out);
    case Operator::kComplexDiagonal:
      return MultiplyComplex(x, params, out);
    case Operator::kLinear:
    case Operator::kAffine:
      break;
  }
  gemm->Multiply({.transpose_b = true,
                  .m = x.rows,
                  .n = dim,
                  .k = dim,
                  .a_stride = x.stride,
                  .b_stride = dim,
                  .c_stride = out.stride},
                 x.data, packed, out.data);
  ClearPadding(out);
  if (op == Operator::kLinear) return;
  for (int64_t i = 0; i < out.rows; ++i) AddFloats(packed + dim * dim, dim, out.row(i));
}

RowBlock RowTransform::Impl::Transform(const RowBlock& x, const RowBlock& other,
                                       float* inverse_norms, Gemm* gemm) const {
  RowBlock rows = x;
  if (max_norm > 0) {
    // A view of the copy as a table: what training does to the table itself.
    for (int64_t i = 0; i < x.rows; ++i) {
      const EntityOffset self = 0;
      LimitRowNorms({.embeddings = x.row(i), .count = 1, .dimension = dim}, {&self, 1}, max_norm);
    }
  }
  if (!global.empty()) {
    for (int64_t i = 0; i < x.rows; ++i) AddFloats(global.data(), dim, x.row(i));
  }
  if (op != Operator::kNone) {
    ApplyOperator(x, other, gemm);
    rows = other;
  }
  if (comparator == Comparator::kCos) NormalizeRows(rows, skip, inverse_norms);
  return rows;
}

RowTransform::RowTransform(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RowTransform::RowTransform(RowTransform&&) noexcept = default;
RowTransform& RowTransform::operator=(RowTransform&&) noexcept = default;
RowTransform::~RowTransform() = default;

absl::StatusOr<RowTransform> RowTransform::Make(const ModelSpec& spec,
                                                const ParameterSet& parameters,
                                                RelationTypeId relation, Side side, RowRole role) {
  const int64_t num_relations =
      spec.dynamic() ? spec.num_dynamic_relations : static_cast<int64_t>(spec.relations.size());
  if (relation < 0 || relation >= num_relations) {
    return absl::InvalidArgumentError(
        absl::StrCat("relation ", relation, ": the model has relations 0 to ", num_relations - 1));
  }
  WEFT_RETURN_IF_ERROR(InitKernels());
  WEFT_RETURN_IF_ERROR(CheckBuiltInComparator(spec));
  WEFT_RETURN_IF_ERROR(CheckBuiltInOperator(spec, relation));
  const RelationSpec& r = spec.relation(relation);
  auto impl = std::make_unique<Impl>();
  impl->dim = spec.dimension(relation);
  impl->max_norm = spec.max_norm;
  impl->comparator = spec.comparator;
  impl->skip = spec.bias ? 1 : 0;
  // Only read below; the lookups are shared with training, which writes.
  auto* all = const_cast<ParameterSet*>(&parameters);

  const bool operated = spec.dynamic() ? role == RowRole::kQuery : side == Side::kRhs;
  if (operated && r.op != Operator::kNone) {
    impl->op = r.op;
    WEFT_ASSIGN_OR_RETURN(const std::vector<Parameter*> parts,
                          FindOperatorParameters(spec, all, spec.dynamic() ? 0 : relation, side));
    int64_t packed = 0;
    for (const Parameter* part : parts) packed += part->values.cols();
    impl->operator_row = FloatBlock(1, PaddedDim(packed));
    float* to = impl->operator_row.data();
    for (const Parameter* part : parts) {
      const auto row = part->values.row(spec.dynamic() ? relation : 0);
      to = std::copy(row.begin(), row.end(), to);
    }
  }
  if (spec.global_emb) {
    WEFT_ASSIGN_OR_RETURN(const Parameter* global,
                          FindGlobalEmbedding(spec, all, side == Side::kLhs ? r.lhs : r.rhs));
    impl->global = FloatBlock(1, PaddedDim(impl->dim));
    std::ranges::copy(global->values.span(), impl->global.data());
  }
  return RowTransform(std::move(impl));
}

int64_t RowTransform::dimension() const { return impl_->dim; }

void RowTransform::Apply(int64_t rows, const float* in, int64_t in_stride, float* out,
                         int64_t out_stride) const {
  UseOneOpenMpThread();
  const int64_t dim = impl_->dim;
  const int64_t stride = RowStride(dim);
  FloatBlock space(2 * kRowsAtOnce + 1, stride);
  RowBlock x{space.data(), kRowsAtOnce, dim, stride};
  const RowBlock other{space.row(kRowsAtOnce).data(), kRowsAtOnce, dim, stride};
  std::vector<float> inverse_norms(kRowsAtOnce);
  Gemm gemm;
  for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows - first);
    for (int64_t i = 0; i < count; ++i) CopyPadded(in + (first + i) * in_stride, dim, x.row(i));
    const RowBlock result = impl_->Transform(x, other, inverse_norms.data(), &gemm);
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(result.row(i), dim, out + (first + i) * out_stride);
    }
  }
}

struct TileScorer::Impl {
  Arena arena;
  Scoring scoring;
  PreparedRows queries;
  PreparedRows candidates;
  // The candidates stand where a step has its queries: a tile is [queries, candidates] here.
  Queries columns;
  int64_t num_candidates = 0;
  ScoredTile tile;

  Impl(const ModelSpec& spec, int64_t dimension) : scoring(Ready(spec), spec.bias) {
    queries = scoring.Allocate(arena.Rows(kQueries, dimension), &arena);
    candidates = scoring.Allocate(arena.Rows(kCandidates, dimension), &arena);
    scoring.AllocateTile(arena.Scores(kQueries, kCandidates), &arena, &tile);
  }
  // Ready rows are normalized already.
  static Comparator Ready(const ModelSpec& spec) {
    return spec.comparator == Comparator::kCos ? Comparator::kDot : spec.comparator;
  }
  void Load(int64_t count, const float* rows, int64_t stride, const PreparedRows& to) {
    for (int64_t i = 0; i < count; ++i) {
      CopyPadded(rows + i * stride, to.rows.dim, to.rows.row(i));
    }
    scoring.Prepare(to.Slice(0, count));
  }
};

TileScorer::TileScorer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TileScorer::TileScorer(TileScorer&&) noexcept = default;
TileScorer& TileScorer::operator=(TileScorer&&) noexcept = default;
TileScorer::~TileScorer() = default;

absl::StatusOr<TileScorer> TileScorer::Make(const ModelSpec& spec, int64_t dimension) {
  WEFT_RETURN_IF_ERROR(InitKernels());
  WEFT_RETURN_IF_ERROR(CheckBuiltInComparator(spec));
  return TileScorer(std::make_unique<Impl>(spec, dimension));
}

void TileScorer::SetCandidates(int64_t count, const float* rows, int64_t stride) {
  WEFT_CHECK(count >= 0 && count <= kCandidates);
  Impl& impl = *impl_;
  impl.num_candidates = count;
  impl.Load(count, rows, stride, impl.candidates);
  const Arena::Mark mark = impl.arena.mark();
  impl.columns = impl.scoring.MakeQueries(impl.candidates.Slice(0, count), &impl.arena);
  impl.arena.Release(mark);  // the next candidates may have the same space
}

void TileScorer::Score(int64_t count, const float* queries, int64_t stride, float* scores) {
  WEFT_CHECK(count >= 0 && count <= kQueries);
  Impl& impl = *impl_;
  impl.Load(count, queries, stride, impl.queries);
  impl.tile.scores = {scores, count, impl.num_candidates, kCandidates};
  impl.tile.close.clear();
  impl.scoring.ScoreRows(impl.queries.Slice(0, count), impl.columns, 0, &impl.tile);
}

}  // namespace weft
