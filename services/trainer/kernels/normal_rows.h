// FillNormalRows draws rows of independent normal values: a table's initial embeddings.
//
// Row i, column 4 b + j is normal number j of Philox(counter {b, i}, key), by Box and Muller, times
// `scale`. Only operations that IEEE 754 rounds exactly are used (no fused multiply-add, no library
// functions), so the values are equal to the bit on every CPU, and a row does not depend on which
// others are drawn with it.
//
// Thread-safety: may be called from any thread, for disjoint rows.
#pragma once

#include <array>
#include <cstdint>

namespace weft {

// out: [num_rows, dimension], rows first_row, first_row + 1, ... of the table.
void FillNormalRows(std::array<uint32_t, 2> key, int64_t first_row, int64_t num_rows,
                    int64_t dimension, float scale, float* out);

}  // namespace weft
