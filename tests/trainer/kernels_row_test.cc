#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "services/common/changed_rows.h"
#include "services/common/embedding_partition.h"
#include "services/trainer/kernels/operator_ops.h"
#include "services/trainer/kernels/row_ops.h"
#include "services/trainer/kernels/tile_ops.h"
#include "services/trainer/kernels/vector_ops.h"
#include "tests/trainer/kernels_testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::Pointwise;
using ::weft::testing::ForEveryTarget;
using ::weft::testing::OwnedRows;

constexpr int kDims[] = {1, 2, 6, 16, 21, 100, 128};

EmbeddingPartition DrawTable(int64_t count, int64_t dim, uint64_t seed) {
  EmbeddingPartition table(count, dim);
  RandomStream random(seed, RandomUse::kTest);
  for (float& x : table.embeddings.span()) x = random.Normal();
  return table;
}

TEST(RowOpsTest, GathersRowsPadsThemAndAddsTheAddend) {
  ForEveryTarget([] {
    for (const int dim : kDims) {
      EmbeddingPartition table = DrawTable(9, dim, 1);
      const std::vector<EntityOffset> offsets = {8, 0, 3, 3, 7, 1, 2, 8, 5, 6, 4};
      const OwnedRows addend(1, dim, 2);
      const OwnedRows plain(11, dim, 3);
      const OwnedRows shifted(11, dim, 3);
      const OwnedRows range(4, dim, 3);
      for (const OwnedRows* out : {&plain, &shifted}) {
        for (int64_t i = 0; i < 11; ++i) std::fill_n(out->row(i), PaddedDim(dim), 9.0f);
      }
      GatherRows(View(table), offsets, nullptr, plain.block());
      GatherRows(View(table), offsets, addend.row(0), shifted.block());
      GatherRange(View(table), 5, nullptr, range.block());

      for (int64_t i = 0; i < 11; ++i) {
        for (int64_t k = 0; k < PaddedDim(dim); ++k) {
          const float x = k < dim ? table.embeddings.row(offsets[i])[k] : 0;
          EXPECT_EQ(plain.at(i, k), x);
          EXPECT_EQ(shifted.at(i, k), k < dim ? x + addend.at(0, k) : 0);
        }
      }
      EXPECT_EQ(range.at(3, dim - 1), table.embeddings.row(8)[dim - 1]);
    }
  });
}

TEST(RowOpsTest, LimitsNormsOfLongRowsOnly) {
  ForEveryTarget([] {
    EmbeddingPartition table(4, 2);
    const float values[] = {3, 4, 0.3f, 0.4f, 6, 8, std::numeric_limits<float>::infinity(), 1};
    std::ranges::copy(values, table.embeddings.data());
    const std::vector<EntityOffset> offsets = {0, 1, 3};
    ChangedRows changed(4);
    EmbeddingTable view = View(table);
    view.changed = changed.data();
    LimitRowNorms(view, offsets, 1);
    EXPECT_THAT(changed, ElementsAre(1, 0, 0, 0));

    EXPECT_THAT(std::vector(table.embeddings.row(0).begin(), table.embeddings.row(0).end()),
                ElementsAre(FloatNear(0.6f, 1e-6f), FloatNear(0.8f, 1e-6f)));
    EXPECT_THAT(std::vector(table.embeddings.row(1).begin(), table.embeddings.row(1).end()),
                ElementsAre(0.3f, 0.4f));
    EXPECT_EQ(table.embeddings.row(2)[0], 6);
    EXPECT_EQ(table.embeddings.row(3)[1], 1);
  });
}

TEST(RowOpsTest, AdagradOfRowsUsesTheMeanSquare) {
  ForEveryTarget([] {
    EmbeddingPartition table(2, 2);
    table.adagrad_sums.row(1)[0] = 3.5f;
    const OwnedRows grads(1, 2);
    grads.at(0, 0) = 3;
    grads.at(0, 1) = 4;
    // Mean square 12.5, sum 16, root 4.
    const std::vector<RowStep> steps = {{.offset = 1, .slot = 0}};
    ChangedRows changed(2);
    EmbeddingTable view = View(table);
    view.changed = changed.data();
    AdagradRows(view, steps, grads.block(), 0.5f);
    EXPECT_THAT(changed, ElementsAre(0, 1));

    EXPECT_EQ(table.adagrad_sums.row(1)[0], 16);
    EXPECT_THAT(std::vector(table.embeddings.row(1).begin(), table.embeddings.row(1).end()),
                ElementsAre(FloatEq(-0.375f), FloatEq(-0.5f)));
    EXPECT_EQ(table.adagrad_sums.row(0)[0], 0);
  });
}

TEST(RowOpsTest, RowWithoutGradientStandsStill) {
  ForEveryTarget([] {
    EmbeddingPartition table = DrawTable(1, 20, 1);
    const EmbeddingPartition before = table.Clone();
    const OwnedRows grads(1, 20);
    const std::vector<RowStep> steps = {{.offset = 0, .slot = 0}};
    AdagradRows(View(table), steps, grads.block(), 0.5f);
    EXPECT_THAT(table.embeddings.span(), Pointwise(::testing::Eq(), before.embeddings.span()));
    EXPECT_EQ(table.adagrad_sums.data()[0], 0);
  });
}

TEST(RowOpsTest, AdagradOfElements) {
  ForEveryTarget([] {
    for (const int64_t n : {1, 5, 21, 100}) {
      std::vector<float> values(n, 1.0f);
      std::vector<float> sums(n, 5.0f);
      std::vector<float> grads(n, 2.0f);
      grads[0] = 0;
      AdagradElements(values.data(), sums.data(), grads.data(), n, 3.0f);
      EXPECT_EQ(values[0], 1);
      EXPECT_EQ(sums[0], 5);
      // 5 + 4 = 9, root 3, step 3 * 2 / 3.
      for (int64_t i = 1; i < n; ++i) {
        EXPECT_FLOAT_EQ(values[i], -1);
        EXPECT_EQ(sums[i], 9);
      }
    }
  });
}

TEST(VectorOpsTest, NormalizesRowsAndTakesGradientsBack) {
  ForEveryTarget([] {
    for (const int dim : {2, 21, 100}) {
      for (const int64_t skip : {0, 1}) {
        const OwnedRows x(3, dim, 1);
        const OwnedRows before(3, dim, 1);
        const OwnedRows g(3, dim, 2);
        const OwnedRows given(3, dim, 2);
        float inverse[3];
        NormalizeRows(x.block(), skip, inverse);
        NormalizeRowsBackward(x.block(), skip, inverse, g.block());
        for (int64_t i = 0; i < 3; ++i) {
          double square = 0;
          double along = 0;
          for (int64_t k = skip; k < dim; ++k) square += std::pow(before.at(i, k), 2);
          const double norm = std::sqrt(square);
          for (int64_t k = skip; k < dim; ++k) along += given.at(i, k) * before.at(i, k) / norm;
          EXPECT_NEAR(inverse[i] * norm, 1, 1e-6);
          for (int64_t k = 0; k < dim; ++k) {
            const double unit = before.at(i, k) / norm;
            EXPECT_NEAR(x.at(i, k), k < skip ? before.at(i, k) : unit, 1e-6);
            const double grad = (given.at(i, k) - along * unit) / norm;
            EXPECT_NEAR(g.at(i, k), k < skip ? given.at(i, k) : grad, 1e-5);
          }
        }
      }
    }
  });
}

TEST(VectorOpsTest, ZeroRowsHaveNoDirectionAndNoGradient) {
  ForEveryTarget([] {
    const OwnedRows x(1, 20);
    const OwnedRows g(1, 20, 1);
    float inverse = 7;
    NormalizeRows(x.block(), 0, &inverse);
    NormalizeRowsBackward(x.block(), 0, &inverse, g.block());
    EXPECT_EQ(inverse, 0);
    for (int64_t k = 0; k < 20; ++k) {
      EXPECT_EQ(x.at(0, k), 0);
      EXPECT_EQ(g.at(0, k), 0);
    }
  });
}

TEST(VectorOpsTest, AddsRowsToTheirTargetsAndTestsThem) {
  ForEveryTarget([] {
    for (const int dim : kDims) {
      const OwnedRows from(3, dim, 1);
      const OwnedRows to(3, dim, 2);
      const OwnedRows before(3, dim, 2);
      float* const rows[] = {to.row(2), to.row(0), to.row(2)};
      const uint8_t fresh[] = {1, 0, 0};
      EXPECT_TRUE(AddRowsTo(from.block(), rows, fresh));
      for (int64_t k = 0; k < dim; ++k) {
        EXPECT_EQ(to.at(2, k), from.at(0, k) + from.at(2, k));
        EXPECT_EQ(to.at(0, k), before.at(0, k) + from.at(1, k));
      }
      from.at(1, dim - 1) = std::numeric_limits<float>::quiet_NaN();
      EXPECT_FALSE(AddRowsTo(from.block(), rows, fresh));
    }
  });
}

TEST(VectorOpsTest, TestsForFiniteness) {
  ForEveryTarget([] {
    std::vector<float> x(37, FLT_MAX);
    EXPECT_TRUE(AllFinite(x.data(), 37));
    for (size_t i = 0; i < 37; ++i) {
      std::vector<float> bad = x;
      bad[i] = -std::numeric_limits<float>::infinity();
      EXPECT_FALSE(AllFinite(bad.data(), 37));
    }
  });
}

TEST(VectorOpsTest, CubedNormsAndTheirGradients) {
  ForEveryTarget([] {
    for (const int dim : {2, 6, 50, 100}) {
      for (const bool complex : {false, true}) {
        const OwnedRows x(2, dim, 1);
        const OwnedRows g(2, dim);
        x.at(0, 0) = x.at(0, dim / 2) = 0;
        const double sum = AddCubedNorm(x.block(), complex, 0.5f, g.block());
        double expected = 0;
        for (int64_t i = 0; i < 2; ++i) {
          for (int64_t k = 0; k < dim; ++k) {
            const double other = complex ? x.at(i, (k + dim / 2) % dim) : 0;
            const double modulus = std::hypot(x.at(i, k), other);
            expected += std::pow(modulus, 3) / (complex ? 2 : 1);
            EXPECT_NEAR(g.at(i, k), 0.5 * 3 * modulus * x.at(i, k), 1e-5);
          }
        }
        EXPECT_NEAR(sum, expected, 1e-4);
      }
    }
  });
}

TEST(OperatorOpsTest, ComplexMultiplicationAndItsGradients) {
  ForEveryTarget([] {
    for (const int dim : {2, 10, 100, 128}) {
      const int64_t half = dim / 2;
      const OwnedRows x(2, dim, 1);
      const OwnedRows params(3, dim, 2);
      const OwnedRows param_grads(3, dim);
      const OwnedRows out(2, dim, 3);
      const OwnedRows g(2, dim, 4);
      const OwnedRows given(2, dim, 4);
      const int32_t index[] = {2, 2};
      MultiplyComplex(x.block(), {params.block(), index}, out.block());
      MultiplyComplexBackward(x.block(), {params.block(), index}, {param_grads.block(), index},
                              g.block());
      for (int64_t k = 0; k < half; ++k) {
        float re = 0;
        float im = 0;
        for (int64_t i = 0; i < 2; ++i) {
          const float a = x.at(i, k), b = x.at(i, half + k);
          const float c = params.at(2, k), d = params.at(2, half + k);
          const float gr = given.at(i, k), gi = given.at(i, half + k);
          EXPECT_NEAR(out.at(i, k), a * c - b * d, 1e-5);
          EXPECT_NEAR(out.at(i, half + k), a * d + b * c, 1e-5);
          EXPECT_NEAR(g.at(i, k), gr * c + gi * d, 1e-5);
          EXPECT_NEAR(g.at(i, half + k), gi * c - gr * d, 1e-5);
          re += gr * a + gi * b;
          im += gi * a - gr * b;
        }
        EXPECT_NEAR(param_grads.at(2, k), re, 1e-5);
        EXPECT_NEAR(param_grads.at(2, half + k), im, 1e-5);
        EXPECT_EQ(param_grads.at(0, k), 0);
      }
      for (int64_t k = dim; k < PaddedDim(dim); ++k) EXPECT_EQ(out.at(0, k), 0);
    }
  });
}

TEST(TileOpsTest, TransposesAndAddsTransposed) {
  ForEveryTarget([] {
    for (const int n : {1, 3, 4, 7, 50}) {
      const OwnedRows a(n, n, 1);
      const OwnedRows b(n, n, 2);
      const OwnedRows sum(n, n, 1);
      const OwnedRows mirror(n, n, 2);
      const OwnedRows turned(n, n);
      TransposeTile(a.tile(), turned.tile());
      AddTransposed(sum.tile(), mirror.tile());
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(turned.at(i, j), a.at(j, i));
          ASSERT_EQ(sum.at(j, i), a.at(j, i) + b.at(i, j));
          ASSERT_EQ(mirror.at(i, j), sum.at(j, i));
        }
      }
    }
  });
}

TEST(TileOpsTest, DistancesDoNotCancel) {
  ForEveryTarget([] {
    const OwnedRows a(3, 20, 1);
    const OwnedRows b(18, 20, 2);
    for (int64_t k = 0; k < 20; ++k) {
      b.at(4, k) = a.at(1, k) + 100;                       // far
      a.at(0, k) = 1000 + 0.001f * static_cast<float>(k);  // far from the origin, ...
      b.at(7, k) = a.at(0, k);
      b.at(9, k) = a.at(0, k) + 0.25f;  // ... and close
    }
    float a_norms[kVectorFloats];
    float b_norms[2 * kVectorFloats];
    SquaredNorms(a.block(), 0, a_norms);
    SquaredNorms(b.block(), 0, b_norms);
    for (const bool squared : {false, true}) {
      const OwnedRows scores(3, 18);
      for (int64_t j = 0; j < 3; ++j) {
        for (int64_t i = 0; i < 18; ++i) {
          float dot = 0;
          for (int64_t k = 0; k < 20; ++k) dot += a.at(j, k) * b.at(i, k);
          scores.at(j, i) = dot;
        }
      }
      std::vector<TilePair> close;
      FinishDistances(a.block(), b.block(), 0, a_norms, b_norms, squared, scores.tile(), &close);
      for (int64_t j = 0; j < 3; ++j) {
        for (int64_t i = 0; i < 18; ++i) {
          double d2 = 0;
          for (int64_t k = 0; k < 20; ++k) d2 += std::pow(double{a.at(j, k)} - b.at(i, k), 2);
          const double expected = squared ? -d2 : -std::sqrt(std::max(d2, 1e-30));
          EXPECT_NEAR(scores.at(j, i), expected, 1e-5 * (1e-3 + std::abs(expected)));
        }
      }
      EXPECT_EQ(scores.at(0, 7), squared ? 0 : -1e-15f);
      EXPECT_EQ(std::ranges::count_if(close, [](TilePair p) { return p.row == 0; }), 2);
    }
  });
}

TEST(TileOpsTest, SumsIgnoreWhatLiesBeyondTheColumns) {
  ForEveryTarget([] {
    const OwnedRows t(3, 18, 1);
    for (int64_t j = 0; j < 3; ++j) {
      for (int64_t i = 18; i < PaddedDim(18); ++i) t.at(j, i) = 1e9f;
    }
    float rows[3];
    float columns[2 * kVectorFloats];
    TileRowSums(t.tile(), rows);
    TileColumnSums(t.tile(), columns);
    for (int64_t j = 0; j < 3; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < 18; ++i) sum += t.at(j, i);
      EXPECT_NEAR(rows[j], sum, 1e-5);
    }
    for (int64_t i = 0; i < 18; ++i) {
      EXPECT_NEAR(columns[i], t.at(0, i) + t.at(1, i) + t.at(2, i), 1e-6);
    }
  });
}

// The environment is read once in a process, so each value has its own.
TEST(CpuDeathTest, WeftCpuIsReadOrRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto init = [](const char* value) {
    setenv("WEFT_CPU", value, 1);
    const absl::Status status = InitKernels();
    std::fprintf(stderr, "%s / %s\n", status.ToString().c_str(),
                 SupportedVectorTargets()[0].name.c_str());
    std::exit(status.ok() ? 0 : 3);
  };
  EXPECT_EXIT(init("sse4"), ::testing::ExitedWithCode(0), "SSE4");
  EXPECT_EXIT(init("pentium"), ::testing::ExitedWithCode(3), "WEFT_CPU=pentium: must be sse4");
}

}  // namespace
}  // namespace weft
