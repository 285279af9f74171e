#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "services/common/random.h"
#include "services/trainer/kernels/normal_rows.h"
#include "services/trainer/kernels/uniform_indices.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/model/model_spec.h"
#include "services/trainer/negative_sampler.h"

namespace weft {
namespace {

constexpr std::array<uint32_t, 2> kKey = {123, 456};

// The definition, in double.
double Expected(int64_t row, int64_t column) {
  const auto bits = Philox({static_cast<uint32_t>(column / 4), static_cast<uint32_t>(row),
                            static_cast<uint32_t>(row >> 32), 0},
                           kKey);
  const int64_t pair = column % 4 / 2;
  const double u = ((bits[2 * pair] >> 1) + 1.0) * 0x1p-31;
  const double angle = 2 * std::numbers::pi * bits[2 * pair + 1] * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * (column % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// Runs `body` with each SIMD target that this CPU has.
template <typename Body>
void OnEveryTarget(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(NormalRowsTest, AreBoxAndMullersNormalsOfPhilox) {
  OnEveryTarget([] {
    const int64_t dimension = 102;
    std::vector<float> rows(50 * dimension);
    const int64_t first = (int64_t{1} << 32) - 20;  // across the word of the counter
    FillNormalRows(kKey, first, 50, dimension, 1, rows.data());
    for (int64_t i = 0; i < 50; ++i) {
      for (int64_t k = 0; k < dimension; ++k) {
        ASSERT_NEAR(rows[i * dimension + k], Expected(first + i, k), 2e-6);
      }
    }
  });
}

TEST(NormalRowsTest, AreEqualToTheBitOnEveryTarget) {
  for (const int64_t dimension : {1, 4, 7, 100, 400}) {
    std::vector<float> first;
    OnEveryTarget([&] {
      std::vector<float> rows(64 * dimension);
      FillNormalRows(kKey, 0, 64, dimension, 1e-3f, rows.data());
      if (first.empty()) first = rows;
      EXPECT_EQ(rows, first);
    });
  }
}

TEST(NormalRowsTest, ARowDoesNotDependOnItsNeighbours) {
  std::vector<float> together(10 * 30);
  FillNormalRows(kKey, 5, 10, 30, 1, together.data());
  std::vector<float> alone(30);
  FillNormalRows(kKey, 12, 1, 30, 1, alone.data());
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + 7 * 30));
}

TEST(UniformIndicesTest, AreScaledWordsOfPhiloxOnEveryTarget) {
  OnEveryTarget([] {
    for (const int64_t n : {0, 1, 3, 64, 1000}) {
      std::vector<int32_t> indices(n + 1, -7);
      FillUniformIndices(kKey, {1, 2, 3}, n, 325'557, indices.data());
      for (int64_t i = 0; i < n; ++i) {
        const auto words = Philox({static_cast<uint32_t>(i / 4), 1, 2, 3}, kKey);
        ASSERT_EQ(indices[i], static_cast<int32_t>(uint64_t{words[i % 4]} * 325'557 >> 32));
      }
      EXPECT_EQ(indices[n], -7);  // nothing is written behind the end
    }
  });
}

// Batch 1000 in chunks of 50, with 50 uniform negatives each.
ModelSpec SpecWithNegatives() {
  RunConfig config;
  config.entities = {{"user", 1, false, {}}};
  config.relations = {{"knows"}};
  config.dimension = 4;
  return *MakeModelSpec(config, 0);
}

TEST(NegativeSamplerTest, CoversBothTablesEvenly) {
  SampledNegatives negatives;
  std::vector<int> lhs(10);
  std::vector<int> rhs(7);
  for (int64_t batch = 0; batch < 100; ++batch) {
    SampleNegatives(SpecWithNegatives(), 0, 1000, 10, 7, {1, 0, {0, 0}, batch}, &negatives);
    ASSERT_EQ(negatives.lhs.size(), 1000u);
    ASSERT_EQ(negatives.rhs.size(), 1000u);
    for (const EntityOffset offset : negatives.lhs) ++lhs.at(offset);
    for (const EntityOffset offset : negatives.rhs) ++rhs.at(offset);
  }
  // Standard deviations 95 and 111.
  EXPECT_THAT(lhs, ::testing::Each(::testing::AllOf(::testing::Ge(9500), ::testing::Le(10500))));
  EXPECT_THAT(rhs, ::testing::Each(::testing::AllOf(::testing::Ge(13700), ::testing::Le(14900))));
}

TEST(NegativeSamplerTest, DependsOnSeedPassBucketAndBatchAlone) {
  auto draw = [](const BatchKey& key) {
    SampledNegatives negatives;
    SampleNegatives(SpecWithNegatives(), 0, 1000, 1000, 1000, key, &negatives);
    return negatives;
  };
  const SampledNegatives some = draw({1, 2, {3, 4}, 5});
  EXPECT_EQ(draw({1, 2, {3, 4}, 5}).lhs, some.lhs);
  EXPECT_EQ(draw({1, 2, {3, 4}, 5}).rhs, some.rhs);
  EXPECT_NE(some.lhs, some.rhs);
  for (const BatchKey& other : {BatchKey{2, 2, {3, 4}, 5}, BatchKey{1, 3, {3, 4}, 5},
                                BatchKey{1, 2, {4, 3}, 5}, BatchKey{1, 2, {3, 4}, 6}}) {
    EXPECT_NE(draw(other).lhs, some.lhs);
    EXPECT_NE(draw(other).rhs, some.rhs);
  }
}

TEST(InitialEmbeddingsTest, AreStandardNormalTimesTheScale) {
  const EmbeddingPartition table = MakeInitialEmbeddings(1, {0, 0}, 10'000, 100, 0.5);
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  double beyond_3 = 0;
  for (const float x : table.embeddings.span()) {
    const double z = x / 0.5;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    beyond_3 += std::abs(z) > 3;
  }
  const double n = 1e6;
  EXPECT_NEAR(sum / n, 0, 0.005);
  EXPECT_NEAR(squares / n, 1, 0.008);
  EXPECT_NEAR(fourth / n, 3, 0.06);
  EXPECT_NEAR(beyond_3 / n, 0.0027, 0.0003);
  for (const float g : table.adagrad_sums.span()) ASSERT_EQ(g, 0);
}

TEST(InitialEmbeddingsTest, DependOnSeedTypeAndPartitionAlone) {
  auto values = [](uint64_t seed, PartitionKey key, int64_t count) {
    const EmbeddingPartition table = MakeInitialEmbeddings(seed, key, count, 8, 1);
    return std::vector<float>(table.embeddings.data(), table.embeddings.data() + 3 * 8);
  };
  const auto some = values(1, {0, 0}, 3);
  EXPECT_EQ(values(1, {0, 0}, 3000), some);
  EXPECT_NE(values(2, {0, 0}, 3), some);
  EXPECT_NE(values(1, {1, 0}, 3), some);
  EXPECT_NE(values(1, {0, 1}, 3), some);
}

TEST(InitialEmbeddingsTest, NoTwoRowsOfALargeTableAreEqual) {
  // PBG's repeat every 1,000,003 numbers.
  const EmbeddingPartition table = MakeInitialEmbeddings(1, {0, 0}, 1'000'100, 2, 1);
  std::vector<std::pair<float, float>> rows;
  for (int64_t i = 0; i < table.count(); ++i) {
    rows.emplace_back(table.embeddings.row(i)[0], table.embeddings.row(i)[1]);
  }
  std::ranges::sort(rows);
  EXPECT_EQ(std::ranges::adjacent_find(rows), rows.end());
}

}  // namespace
}  // namespace weft
