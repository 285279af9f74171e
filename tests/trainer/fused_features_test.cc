// The fused step on featurized sides, by hand and against rows of their own; against the reference:
// oracle_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "services/common/random.h"
#include "services/trainer/fused/fused_batch_step.h"
#include "services/trainer/model/model_parameters.h"
#include "tests/testing/status_matchers.h"
#include "tests/trainer/fused_allocation_count.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

// Documents of words on the left, plain readers on the right; negatives of the batch.
struct World {
  ModelSpec spec;
  ParameterSet parameters;
  EmbeddingPartition words;
  EmbeddingPartition readers;
  FeatureBags documents;
  std::vector<EntityOffset> lhs;
  std::vector<EntityOffset> rhs;
  std::vector<RelationTypeId> rel;
  std::vector<uint8_t> changed;  // of words

  EdgeBatch batch() const {
    EdgeBatch batch = {lhs, rhs, rel, {}};
    if (!documents.empty()) batch.lhs_bags = &documents;
    return batch;
  }
  BatchTables tables() {
    BatchTables tables = {View(words), View(readers)};
    if (!changed.empty()) tables.lhs.changed = changed.data();
    return tables;
  }
  std::unique_ptr<BatchStep> Step() {
    auto step = FusedBatchStepFactory().Make(spec, &parameters);
    EXPECT_THAT(step, IsOk());
    return *std::move(step);
  }
};

World MakeWorld(int64_t num_words, int64_t num_readers, int dimension) {
  World w;
  w.spec.entity_types = {{"word", dimension}, {"reader", dimension}};
  w.spec.relations.push_back({.name = "read_by", .lhs = 0, .rhs = 1, .operator_name = "none"});
  w.spec.featurized_relations[0] = {1};
  w.spec.comparator = Comparator::kDot;
  w.spec.loss = Loss::kSoftmax;
  w.spec.global_emb = false;
  w.spec.num_uniform_negs = 0;
  w.words = EmbeddingPartition(num_words, dimension);
  w.readers = EmbeddingPartition(num_readers, dimension);
  return w;
}

World Draw(int64_t num_edges, uint64_t seed) {
  World w = MakeWorld(40, 30, 12);
  RandomStream random(seed, RandomUse::kTest);
  for (EmbeddingPartition* table : {&w.words, &w.readers}) {
    for (float& x : table->embeddings.span()) x = random.Normal() / 4;
  }
  for (int64_t i = 0; i < num_edges; ++i) {
    std::vector<EntityOffset> bag(random.Below(5));
    for (EntityOffset& word : bag) word = static_cast<EntityOffset>(random.Below(40));
    w.documents.Append(bag);
    w.lhs.push_back(static_cast<EntityOffset>(i));
    w.rhs.push_back(static_cast<EntityOffset>(random.Below(30)));
    w.rel.push_back(0);
  }
  return w;
}

// Words (2, 0), (0, 2), (4, 4); document 0 has the first two, document 1 the first one, and
// document 2 none. One reader: (1, 3).
World ByHand() {
  World w = MakeWorld(3, 1, 2);
  w.spec.loss = Loss::kLogistic;
  w.spec.disable_lhs_negs = w.spec.disable_rhs_negs = true;
  std::ranges::copy(std::vector<float>{2, 0, 0, 2, 4, 4}, w.words.embeddings.data());
  std::ranges::copy(std::vector<float>{1, 3}, w.readers.embeddings.data());
  for (const std::vector<EntityOffset>& bag : {std::vector<EntityOffset>{0, 1}, {0}, {}}) {
    w.documents.Append(bag);
  }
  w.lhs = {0, 1, 2};
  w.rhs = {0, 0, 0};
  w.rel = {0, 0, 0};
  return w;
}

TEST(FeaturizedStepTest, AnEntityIsTheMeanOfItsFeatures) {
  World w = ByHand();
  BatchScores scores;
  ASSERT_THAT(w.Step()->Score(w.batch(), {}, w.tables(), &scores), IsOk());

  EXPECT_THAT(scores.lhs_pos, ElementsAre(4, 2, 0));  // (1, 1), (2, 0) and (0, 0) times (1, 3)
}

TEST(FeaturizedStepTest, EachFeatureGetsItsShareOfTheGradient) {
  World w = ByHand();
  const auto gradients = w.Step()->Gradients(w.batch(), {}, w.tables());
  ASSERT_THAT(gradients, IsOk());

  // Both directions score the same positives: 2 softplus(-s) has gradient -2 / (1 + e^s).
  const auto slope = [](double s) { return -2 / (1 + std::exp(s)); };
  EXPECT_THAT(gradients->lhs.offsets, ElementsAre(0, 1));
  const double first = slope(4) / 2 + slope(2);
  const std::vector<double> expected = {first, 3 * first, slope(4) / 2, 3 * slope(4) / 2};
  ASSERT_EQ(gradients->lhs.values.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(gradients->lhs.values[i], expected[i], 1e-6) << i;
  }
}

TEST(FeaturizedStepTest, BagsOfOneFeatureAreRowsOfTheTable) {
  World featurized = Draw(100, 1);
  featurized.documents.Clear();
  for (int i = 0; i < 100; ++i) {
    featurized.documents.Append(std::vector<EntityOffset>{static_cast<EntityOffset>(i % 7)});
  }
  World plain = Draw(100, 1);
  plain.documents.Clear();
  plain.spec.featurized_relations[0].clear();
  for (int i = 0; i < 100; ++i) plain.lhs[i] = i % 7;

  const auto a = featurized.Step()->Gradients(featurized.batch(), {}, featurized.tables());
  const auto b = plain.Step()->Gradients(plain.batch(), {}, plain.tables());

  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  EXPECT_EQ(a->lhs.offsets, b->lhs.offsets);
  ASSERT_EQ(a->lhs.values.size(), b->lhs.values.size());
  for (size_t i = 0; i < a->lhs.values.size(); ++i) {
    EXPECT_NEAR(a->lhs.values[i], b->lhs.values[i], 1e-5) << i;
  }
}

TEST(FeaturizedStepTest, EmptyBagsAreFiniteWithCos) {
  World w = ByHand();
  w.spec.comparator = Comparator::kCos;
  BatchScores scores;
  ASSERT_THAT(w.Step()->Score(w.batch(), {}, w.tables(), &scores), IsOk());
  EXPECT_EQ(scores.lhs_pos[2], 0);
  EXPECT_THAT(w.Step()->Train(w.batch(), {}, w.tables()), IsOk());
  for (const float x : w.words.embeddings.span()) EXPECT_TRUE(std::isfinite(x));
}

TEST(FeaturizedStepTest, ABatchOfEmptyBagsLeavesTheFeaturesAlone) {
  World w = ByHand();
  w.documents.Clear();
  for (int i = 0; i < 3; ++i) w.documents.Append({});
  const EmbeddingPartition before = w.words.Clone();

  ASSERT_THAT(w.Step()->Train(w.batch(), {}, w.tables()), IsOk());

  EXPECT_THAT(w.words.embeddings.span(), ElementsAreArray(before.embeddings.span()));
  EXPECT_THAT(w.words.adagrad_sums.span(), Each(0));
}

TEST(FeaturizedStepTest, MarksTheFeaturesItWrites) {
  World w = ByHand();
  w.changed.assign(3, 0);

  ASSERT_THAT(w.Step()->Train(w.batch(), {}, w.tables()), IsOk());

  EXPECT_THAT(w.changed, ElementsAre(1, 1, 0));
}

TEST(FeaturizedStepTest, MaxNormLimitsFeaturesNotTheirMean) {
  World w = ByHand();
  w.spec.max_norm = 1;
  BatchScores scores;
  ASSERT_THAT(w.Step()->Score(w.batch(), {}, w.tables(), &scores), IsOk());

  EXPECT_NEAR(scores.lhs_pos[0], 2 / std::sqrt(10.0), 1e-6);  // ((1, 0) + (0, 1)) / 2
  EXPECT_NEAR(w.words.embeddings.row(0)[0], 1, 1e-6);
  EXPECT_EQ(w.words.embeddings.row(2)[0], 4);  // in no bag
}

TEST(FeaturizedStepTest, AFeatureThatIsNotFiniteStopsTheStep) {
  World w = Draw(50, 3);
  const EntityOffset word = w.documents.features[5];
  w.words.embeddings.row(word)[3] = std::numeric_limits<float>::quiet_NaN();
  const EmbeddingPartition before = w.readers.Clone();

  EXPECT_THAT(w.Step()->Train(w.batch(), {}, w.tables()),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("read_by")));

  EXPECT_THAT(w.readers.embeddings.span(), ElementsAreArray(before.embeddings.span()));
}

TEST(FeaturizedStepTest, AllocatesNothingAfterTheFirstBatches) {
  if (!testing::CountsAllocations()) GTEST_SKIP() << "a sanitizer allocates for itself";
  World w = Draw(100, 2);
  const auto step = w.Step();
  for (int i = 0; i < 3; ++i) ASSERT_THAT(step->Train(w.batch(), {}, w.tables()), IsOk());
  const int64_t before = testing::NumAllocations();
  const auto stats = step->Train(w.batch(), {}, w.tables());
  EXPECT_EQ(testing::NumAllocations(), before);
  EXPECT_THAT(stats, IsOk());
}

}  // namespace
}  // namespace weft
