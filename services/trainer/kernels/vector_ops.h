// Kernels over blocks of rows: norms, the comparator's preparation, sums. Highway chooses the
// instructions at run time (cpu.h). Blocks are padded as row_block.h says, and stay so.
//
// `skip` (0 or 1) leaves out that many first coordinates: with a bias, coordinate 0 is no part of
// the vector that is compared.
// Thread-safety: pure functions of their arguments.
#pragma once

#include <cstdint>

#include "services/trainer/kernels/row_block.h"

namespace weft {

// Clears the columns between dim and PaddedDim(dim).
void ClearPadding(const RowBlock& rows);
void ZeroRows(const RowBlock& rows);
void CopyRows(const RowBlock& from, const RowBlock& to);
// to += from
void AddRows(const RowBlock& from, const RowBlock& to);
// Row i of `from` is added to the padded row to[i], or copied where `fresh[i]`. Returns whether all
// results are finite.
bool AddRowsTo(const RowBlock& from, float* const* to, const uint8_t* fresh);

// norms: [rows]; squared 2-norms.
void SquaredNorms(const RowBlock& x, int64_t skip, float* norms);

// Divides each row by its 2-norm, in place, and writes the inverse norms [rows]. A zero row stays
// zero, with inverse 0. Rows whose squares overflow or vanish in float are right as well.
void NormalizeRows(const RowBlock& x, int64_t skip, float* inverse_norms);

// Turns gradients of normalized rows into gradients of the rows before, in place:
// g <- (g - (g . x) x) * inverse_norm, x being normalized.
void NormalizeRowsBackward(const RowBlock& x, int64_t skip, const float* inverse_norms,
                           const RowBlock& g);

// out: [rows]; a_i . b_i, or |a_i - b_i|^2.
void RowDots(const RowBlock& a, const RowBlock& b, int64_t skip, float* out);
void RowSquaredDistances(const RowBlock& a, const RowBlock& b, int64_t skip, float* out);
// |a - b|^2 of two padded rows.
float SquaredDistance(const float* a, const float* b, int64_t dim, int64_t skip);

// y_i -= scale_i * x_i, over the coordinates from `skip`; `scale`: [rows].
void SubtractScaledRows(const RowBlock& x, const float* scale, int64_t skip, const RowBlock& y);
// y += scale * x, and y += scale * (a - b), for padded rows.
void AddScaledRow(const float* x, float scale, int64_t dim, int64_t skip, float* y);
void AddScaledDifference(const float* a, const float* b, float scale, int64_t dim, int64_t skip,
                         float* y);

// y += x, for `n` floats that need not be padded or aligned.
void AddFloats(const float* x, int64_t n, float* y);

// The N3 penalty: the sum of |x|^3, and g += 3 coef |x| x when `coef` != 0. `complex`: |.| is the
// modulus of (x_j, x_{j + dim/2}).
double AddCubedNorm(const RowBlock& x, bool complex, float coef, const RowBlock& g);

// True when all `n` values are finite. Need not be padded.
bool AllFinite(const float* x, int64_t n);

}  // namespace weft
