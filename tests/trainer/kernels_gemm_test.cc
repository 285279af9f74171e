#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/trainer/kernels/block_gemm.h"
#include "services/trainer/kernels/gemm.h"
#include "tests/trainer/kernels_testing.h"

namespace weft {
namespace {

using ::weft::testing::ForEveryTarget;
using ::weft::testing::OwnedRows;

struct Size {
  int64_t m, n, k;
};
// Below, at and above every width of vectors, numbers of rows of the kernels, and runs of k.
constexpr Size kSizes[] = {{1, 1, 1},    {2, 3, 4},    {5, 16, 7},    {6, 17, 9},    {7, 20, 128},
                           {8, 31, 129}, {13, 33, 50}, {50, 50, 100}, {50, 100, 50}, {3, 64, 300},
                           {1, 70, 20},  {19, 100, 5}, {4, 130, 3}};

// Sum over l of a(i, l) b(l, j).
double Plain(const OwnedRows& a, bool transposed, const OwnedRows& b, int64_t i, int64_t j,
             int64_t k) {
  double sum = 0;
  for (int64_t l = 0; l < k; ++l) sum += double{transposed ? a.at(l, i) : a.at(i, l)} * b.at(l, j);
  return sum;
}

TEST(BlockGemmTest, MultipliesEveryShape) {
  ForEveryTarget([] {
    for (const auto& [m, n, k] : kSizes) {
      for (const bool transposed : {false, true}) {
        for (const bool accumulate : {false, true}) {
          SCOPED_TRACE(absl::StrCat(m, " x ", n, " x ", k, transposed ? " transposed" : "",
                                    accumulate ? " added" : ""));
          const OwnedRows a(transposed ? k : m, transposed ? m : k, 1);
          const OwnedRows b(k, n, 2);
          const OwnedRows c(m, n, 3);
          const OwnedRows before(m, n, 3);
          MultiplyBlocks({.m = m,
                          .n = n,
                          .k = k,
                          .a = a.row(0),
                          .a_row = transposed ? 1 : a.block().stride,
                          .a_col = transposed ? a.block().stride : 1,
                          .b = b.row(0),
                          .b_stride = b.block().stride,
                          .c = c.row(0),
                          .c_stride = c.block().stride,
                          .accumulate = accumulate,
                          .scattered = {},
                          .prefetch = nullptr});
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              const double expected =
                  Plain(a, transposed, b, i, j, k) + (accumulate ? before.at(i, j) : 0);
              ASSERT_NEAR(c.at(i, j), expected, 2e-6 * (1 + std::sqrt(static_cast<double>(k))))
                  << i << ", " << j;
            }
          }
        }
      }
    }
  });
}

// Whole vectors, and one or two columns more, by columns that stand as rows.
TEST(BlockGemmTest, FewColumnsBeyondWholeVectorsAreDotProducts) {
  ForEveryTarget([] {
    for (const int64_t n : {1, 2, 17, 18, 49, 50, 51}) {
      for (const int64_t k : {1, 7, 99, 200}) {
        SCOPED_TRACE(absl::StrCat(n, " columns, k = ", k));
        constexpr int64_t kM = 23;
        const OwnedRows a(kM, k, 1);
        const OwnedRows b(k, n, 2);
        const OwnedRows columns(n, k);
        for (int64_t j = 0; j < n; ++j) {
          for (int64_t l = 0; l < k; ++l) columns.at(j, l) = b.at(l, j);
        }
        const auto multiply = [&](int64_t first, int64_t m, const OwnedRows& c) {
          MultiplyBlocks({.m = m,
                          .n = n,
                          .k = k,
                          .a = a.row(first),
                          .a_row = a.block().stride,
                          .a_col = 1,
                          .b = b.row(0),
                          .b_stride = b.block().stride,
                          .c = c.row(0),
                          .c_stride = c.block().stride,
                          .b_columns = columns.row(0),
                          .b_columns_stride = columns.block().stride,
                          .scattered = {}});
        };
        const OwnedRows all(kM, n);
        multiply(0, kM, all);
        for (int64_t i = 0; i < kM; ++i) {
          const OwnedRows row(1, n);
          multiply(i, 1, row);
          for (int64_t j = 0; j < n; ++j) {
            ASSERT_NEAR(all.at(i, j), Plain(a, false, b, i, j, k),
                        2e-6 * (1 + std::sqrt(static_cast<double>(k))))
                << i << ", " << j;
            // The bits do not depend on where a row stands.
            ASSERT_EQ(std::bit_cast<uint32_t>(row.at(0, j)), std::bit_cast<uint32_t>(all.at(i, j)));
          }
        }
      }
    }
  });
}

TEST(BlockGemmTest, AddsToScatteredRowsAndOverwritesFreshOnes) {
  // Two runs of k; more rows than are computed together, the next ones asked for meanwhile.
  for (const auto& [m, n, k] : {Size{9, 40, 150}, Size{211, 52, 50}}) {
    SCOPED_TRACE(absl::StrCat(m, " x ", n, " x ", k));
    ForEveryTarget([&, m = m, n = n, k = k] {
      const OwnedRows a(m, k, 1);
      const OwnedRows b(k, n, 2);
      const OwnedRows c(2 * m, n, 3);
      const OwnedRows before(2 * m, n, 3);
      const auto place = [m](int64_t i) { return 2 * (m - i) - 1; };
      std::vector<float*> rows;
      std::vector<uint8_t> fresh;
      for (int64_t i = 0; i < m; ++i) {
        rows.push_back(c.row(place(i)));
        fresh.push_back(i % 3 == 0);
      }
      std::vector<const float*> wanted(rows.begin(), rows.end());
      PrefetchQueue queue{.rows = wanted.data(), .row_floats = n};
      queue.Begin(0, m, 2.0 * m * n * k);
      bool finite = true;
      MultiplyBlocks({.m = m,
                      .n = n,
                      .k = k,
                      .a = a.row(0),
                      .a_row = a.block().stride,
                      .a_col = 1,
                      .b = b.row(0),
                      .b_stride = b.block().stride,
                      .scattered = {rows.data(), fresh.data(), &finite},
                      .prefetch = &queue});

      EXPECT_TRUE(finite);
      EXPECT_GT(queue.next, 0);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          const double there = fresh[i] != 0 ? 0 : before.at(place(i), j);
          ASSERT_NEAR(c.at(place(i), j), Plain(a, false, b, i, j, k) + there, 3e-5);
          ASSERT_EQ(c.at(place(i) - 1, j), before.at(place(i) - 1, j));
        }
      }
    });
  }
}

// Rows of their own, with nothing behind them that may be read: the same bits as in a block.
TEST(BlockGemmTest, RowsOfAAndBMayStandAnywhere) {
  const auto apart = [](const OwnedRows& x, int64_t rows, int64_t dim) {
    std::vector<std::vector<float>> out;
    for (int64_t i = 0; i < rows; ++i) out.emplace_back(x.row(i), x.row(i) + dim);
    return out;
  };
  const auto places = [](const std::vector<std::vector<float>>& rows) {
    std::vector<const float*> out;
    for (const auto& row : rows) out.push_back(row.data());
    return out;
  };
  ForEveryTarget([&] {
    for (const auto& [m, n, k] : kSizes) {
      SCOPED_TRACE(absl::StrCat(m, " x ", n, " x ", k));
      const OwnedRows a(m, k, 1);
      const OwnedRows b(k, n, 2);
      const OwnedRows together(m, n);
      BlockProduct product{.m = m,
                           .n = n,
                           .k = k,
                           .a = a.row(0),
                           .a_row = a.block().stride,
                           .a_col = 1,
                           .b = b.row(0),
                           .b_stride = b.block().stride,
                           .c = together.row(0),
                           .c_stride = together.block().stride,
                           .scattered = {}};
      MultiplyBlocks(product);

      const std::vector<std::vector<float>> a_rows = apart(a, m, k);
      const std::vector<std::vector<float>> b_rows = apart(b, k, n);
      const std::vector<const float*> a_places = places(a_rows);
      const std::vector<const float*> b_places = places(b_rows);
      const OwnedRows c(m, n);
      product.c = c.row(0);
      product.a = nullptr;
      product.a_places = a_places.data();
      if (CanReadInPlace(n)) {
        product.b = nullptr;
        product.b_places = b_places.data();
      }
      MultiplyBlocks(product);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          ASSERT_EQ(std::bit_cast<uint32_t>(c.at(i, j)), std::bit_cast<uint32_t>(together.at(i, j)))
              << i << ", " << j;
        }
      }
    }
  });
}

TEST(BlockGemmTest, NoticesScatteredResultsThatAreNotFinite) {
  ForEveryTarget([] {
    for (const int64_t n : {1, 4, 5, 16, 20, 50}) {
      for (int64_t bad = 0; bad < n; ++bad) {
        const OwnedRows a(7, 3, 1);
        const OwnedRows b(3, n, 2);
        const OwnedRows c(7, n);
        b.at(1, bad) = std::numeric_limits<float>::infinity();
        std::vector<float*> rows;
        for (int64_t i = 0; i < 7; ++i) rows.push_back(c.row(i));
        const std::vector<uint8_t> fresh(7, 1);
        bool finite = true;
        MultiplyBlocks({.m = 7,
                        .n = n,
                        .k = 3,
                        .a = a.row(0),
                        .a_row = a.block().stride,
                        .a_col = 1,
                        .b = b.row(0),
                        .b_stride = b.block().stride,
                        .scattered = {rows.data(), fresh.data(), &finite}});
        EXPECT_FALSE(finite) << "column " << bad << " of " << n;
      }
    }
  });
}

TEST(BlockGemmTest, ElementHasTheSameBitsWhereverItStands) {
  ForEveryTarget([] {
    for (const int64_t k : {20, 100, 400}) {
      const OwnedRows a(23, k, 1);
      const OwnedRows b(k, 77, 2);
      const OwnedRows all(23, 77);
      MultiplyBlocks({.m = 23,
                      .n = 77,
                      .k = k,
                      .a = a.row(0),
                      .a_row = a.block().stride,
                      .a_col = 1,
                      .b = b.row(0),
                      .b_stride = b.block().stride,
                      .c = all.row(0),
                      .c_stride = all.block().stride,
                      .scattered = {}});
      for (int64_t i = 0; i < 23; ++i) {
        for (int64_t j = 0; j < 77; j += 5) {
          const OwnedRows column(k, 1);
          for (int64_t l = 0; l < k; ++l) column.at(l, 0) = b.at(l, j);
          const OwnedRows one(1, 1);
          MultiplyBlocks({.m = 1,
                          .n = 1,
                          .k = k,
                          .a = a.row(i),
                          .a_row = a.block().stride,
                          .a_col = 1,
                          .b = column.row(0),
                          .b_stride = column.block().stride,
                          .c = one.row(0),
                          .c_stride = one.block().stride,
                          .scattered = {}});
          ASSERT_EQ(std::bit_cast<uint32_t>(one.at(0, 0)), std::bit_cast<uint32_t>(all.at(i, j)));
        }
      }
    }
  });
}

TEST(BlockGemmTest, TransposesRows) {
  ForEveryTarget([] {
    for (const auto& [rows, dim] : {std::pair{50, 100}, {1, 1}, {3, 6}, {7, 33}}) {
      const OwnedRows x(rows, dim, 1);
      const OwnedRows out(PaddedDim(dim), rows);
      TransposeRows(x.block(), out.row(0), out.block().stride);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < dim; ++j) ASSERT_EQ(out.at(j, i), x.at(i, j));
      }
    }
  });
}

TEST(GemmTest, BothMethodsMultiplyEveryTransposition) {
  Gemm gemm;
  for (const GemmMethod method : {GemmMethod::kSgemm, GemmMethod::kPrimitive}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const bool accumulate : {false, true}) {
          constexpr int64_t kM = 5;
          constexpr int64_t kN = 7;
          constexpr int64_t kK = 9;
          const OwnedRows a(ta ? kK : kM, ta ? kM : kK, 1);
          const OwnedRows b(tb ? kN : kK, tb ? kK : kN, 2);
          const OwnedRows c(kM, kN, 3);
          const OwnedRows before(kM, kN, 3);
          gemm.MultiplyBy(method,
                          {.transpose_a = ta,
                           .transpose_b = tb,
                           .m = kM,
                           .n = kN,
                           .k = kK,
                           .a_stride = a.block().stride,
                           .b_stride = b.block().stride,
                           .c_stride = c.block().stride,
                           .accumulate = accumulate},
                          a.row(0), b.row(0), c.row(0));
          for (int64_t i = 0; i < kM; ++i) {
            for (int64_t j = 0; j < kN; ++j) {
              double expected = accumulate ? before.at(i, j) : 0;
              for (int64_t l = 0; l < kK; ++l) {
                expected += double{ta ? a.at(l, i) : a.at(i, l)} * (tb ? b.at(j, l) : b.at(l, j));
              }
              ASSERT_NEAR(c.at(i, j), expected, 1e-5);
            }
          }
        }
      }
    }
  }
}

TEST(GemmTest, EmptySumsAreZero) {
  Gemm gemm;
  float c[2] = {7, 7};
  const GemmShape shape{
      .m = 1, .n = 2, .k = 0, .a_stride = 1, .b_stride = 2, .c_stride = 2, .accumulate = false};
  gemm.Multiply(shape, c, c, c);
  EXPECT_EQ(c[0], 0);
  EXPECT_EQ(c[1], 0);
}

}  // namespace
}  // namespace weft
