#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/common/changed_rows.h"
#include "services/common/embedding_partition.h"
#include "services/common/random.h"
#include "services/trainer/fused/arena.h"
#include "services/trainer/fused/fused_batch_step.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/negative_sampler.h"
#include "tests/testing/status_matchers.h"
#include "tests/trainer/fused_allocation_count.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

// A model, its tables and a batch.
struct World {
  ModelSpec spec;
  ParameterSet parameters;
  EmbeddingPartition lhs_table;
  EmbeddingPartition rhs_table;
  bool shared = false;
  std::vector<EntityOffset> lhs;
  std::vector<EntityOffset> rhs;
  std::vector<RelationTypeId> rel;
  std::vector<float> weight;
  SampledNegatives negatives;

  EdgeBatch batch() const { return {lhs, rhs, rel, weight}; }
  BatchTables tables() { return {View(lhs_table), View(shared ? lhs_table : rhs_table)}; }
  std::unique_ptr<BatchStep> Step() {
    auto step = FusedBatchStepFactory().Make(spec, &parameters);
    EXPECT_THAT(step, IsOk());
    return *std::move(step);
  }
  absl::StatusOr<BatchStats> Train(BatchStep* step) {
    return step->Train(batch(), negatives, tables());
  }
};

ModelSpec DotSpec(int dimension) {
  ModelSpec spec;
  spec.entity_types = {{"user", dimension}, {"item", dimension}};
  spec.relations.push_back({.name = "likes", .lhs = 0, .rhs = 1, .operator_name = "none"});
  spec.comparator = Comparator::kDot;
  spec.global_emb = false;
  return spec;
}

// n edges over tables of `count` entities, everything drawn.
World Draw(const ModelSpec& spec, int64_t n, int64_t count, uint64_t seed) {
  World w;
  w.spec = spec;
  w.parameters = MakeInitialParameters(spec);
  const int dim = spec.dimension(0);
  RandomStream random(seed, RandomUse::kTest);
  for (EmbeddingPartition* table : {&w.lhs_table, &w.rhs_table}) {
    *table = EmbeddingPartition(count, dim);
    for (float& x : table->embeddings.span()) x = random.Normal() / 4;
  }
  const auto below = static_cast<uint32_t>(count);
  for (int64_t i = 0; i < n; ++i) {
    w.lhs.push_back(static_cast<EntityOffset>(random.Below(below)));
    w.rhs.push_back(static_cast<EntityOffset>(random.Below(below)));
    w.rel.push_back(spec.dynamic() ? static_cast<RelationTypeId>(random.Below(
                                         static_cast<uint32_t>(spec.num_dynamic_relations)))
                                   : 0);
  }
  SampleNegatives(spec, 0, n, count, count, {.seed = seed, .pass = 0, .bucket = {}, .batch = 0},
                  &w.negatives);
  return w;
}

// l0 = (1, 0), l1 = (0, 1), r0 = (1, 1), r1 = (2, 0); edges (l0, r0), (l1, r1) in one chunk.
World TwoEdges() {
  World w;
  w.spec = DotSpec(2);
  w.spec.loss = Loss::kRanking;
  w.spec.margin = 0.5f;
  w.spec.num_uniform_negs = 0;
  w.lhs_table = EmbeddingPartition(2, 2);
  w.rhs_table = EmbeddingPartition(2, 2);
  std::ranges::copy(std::vector<float>{1, 0, 0, 1}, w.lhs_table.embeddings.data());
  std::ranges::copy(std::vector<float>{1, 1, 2, 0}, w.rhs_table.embeddings.data());
  w.lhs = w.rhs = {0, 1};
  w.rel = {0, 0};
  return w;
}

// Batches have more and more distinct rows, by chance: the largest so far counts, not all of them.
TEST(ArenaTest, HoldsNoMoreThanTheLargestBatchNeeds) {
  constexpr int64_t kLarge = int64_t{4} << 20;
  Arena arena;
  const auto batch = [&](int64_t large) {
    arena.Begin();
    std::vector<float*> taken = {arena.Floats(1000), arena.Floats(large), arena.Floats(2000)};
    const Arena::Mark mark = arena.mark();
    taken.push_back(arena.Floats(large / 2));
    arena.Release(mark);
    taken.push_back(arena.Floats(3000));
    return taken;
  };

  for (int64_t i = 0; i < 100; ++i) batch(kLarge + i * kLarge / 50);
  const int64_t held = arena.capacity();
  const std::vector<float*> before = batch(3 * kLarge - kLarge / 50);
  const std::vector<float*> after = batch(kLarge);

  // The two large ones with an eighth to spare, and the small ones' first block.
  EXPECT_LE(held, 3 * kLarge * 9 / 8 + 3 * kLarge / 2 * 9 / 8 + kLarge);
  EXPECT_EQ(arena.capacity(), held);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], before[1]);
}

TEST(FusedBatchStepTest, ScoresBatchNegativesByHand) {
  World w = TwoEdges();
  BatchScores scores;
  const auto stats = w.Step()->Score(w.batch(), w.negatives, w.tables(), &scores);

  ASSERT_THAT(stats, IsOk());
  // Scores l_i . r_j: 1 2 / 1 0.
  EXPECT_THAT(scores.lhs_pos, ElementsAre(1, 0));
  EXPECT_THAT(scores.rhs_neg, ElementsAre(-1e9f, 2, 1, -1e9f));
  EXPECT_THAT(scores.lhs_neg, ElementsAre(-1e9f, 1, 2, -1e9f));
  // 1.5 + 1.5 for the right-hand side, 0.5 + 2.5 for the left.
  EXPECT_DOUBLE_EQ(stats->loss, 6);
  EXPECT_EQ(stats->count, 2);
  EXPECT_EQ(stats->violators_rhs, 2);
  EXPECT_EQ(stats->violators_lhs, 1);  // 1 is not above 1
}

TEST(FusedBatchStepTest, GradientsByHand) {
  World w = TwoEdges();
  const auto gradients = w.Step()->Gradients(w.batch(), w.negatives, w.tables());

  ASSERT_THAT(gradients, IsOk());
  EXPECT_THAT(gradients->lhs.offsets, ElementsAre(0, 1));
  // l0: 2 r1 - 2 r0, l1: 2 r0 - 2 r1, and so on.
  EXPECT_THAT(gradients->lhs.values, ElementsAre(2, -2, -2, 2));
  EXPECT_THAT(gradients->rhs.values, ElementsAre(-2, 2, 2, -2));
}

TEST(FusedBatchStepTest, StepIsRowAdagrad) {
  World w = TwoEdges();
  w.spec.lr = 0.25f;
  const std::unique_ptr<BatchStep> step = w.Step();
  ASSERT_THAT(w.Train(step.get()), IsOk());

  // Mean square 4, root 2: a step of 0.25 * 2 / 2.
  EXPECT_THAT(w.lhs_table.adagrad_sums.span(), ElementsAre(4, 4));
  EXPECT_THAT(w.lhs_table.embeddings.span(),
              ElementsAre(FloatEq(0.75f), FloatEq(0.25f), FloatEq(0.25f), FloatEq(0.75f)));
  EXPECT_EQ(w.parameters.steps, 1);
}

TEST(FusedBatchStepTest, DuplicatesAndBothSidesOfASharedTableAreSummedBeforeTheStep) {
  // Entity 0 to itself and to 1, twice: every use of a row adds up.
  World w;
  w.spec = DotSpec(2);
  w.spec.relations[0].rhs = 0;
  w.spec.loss = Loss::kLogistic;
  w.spec.num_batch_negs = 0;
  w.spec.num_uniform_negs = 1;
  w.lhs_table = EmbeddingPartition(3, 2);
  w.shared = true;
  w.lhs = {0, 0};
  w.rhs = {1, 1};
  w.rel = {0, 0};
  w.negatives.lhs = {2, 2};
  w.negatives.rhs = {2, 2};
  for (float& x : w.lhs_table.embeddings.span()) x = 1;
  const auto gradients = w.Step()->Gradients(w.batch(), w.negatives, w.tables());

  ASSERT_THAT(gradients, IsOk());
  EXPECT_THAT(gradients->lhs.offsets, ElementsAre(0, 1, 2));
  EXPECT_TRUE(gradients->rhs.offsets.empty());
  // All scores are 2. Each edge and side: -sigmoid(-2) for the positive, sigmoid(2) for the
  // negative.
  const float pos = -1 / (1 + std::exp(2.0f));
  const float neg = 1 / (1 + std::exp(-2.0f));
  const float ends = 2 * (2 * pos + neg);
  const float sample = 4 * neg;
  EXPECT_THAT(gradients->lhs.values,
              Pointwise(::testing::FloatNear(1e-6f), {ends, ends, ends, ends, sample, sample}));
}

TEST(FusedBatchStepTest, MaxNormScalesRowsInTheTable) {
  World w = TwoEdges();
  w.spec.max_norm = 1;
  BatchScores scores;
  ASSERT_THAT(w.Step()->Score(w.batch(), w.negatives, w.tables(), &scores), IsOk());

  EXPECT_NEAR(w.rhs_table.embeddings.row(1)[0], 1, 1e-6);
  EXPECT_NEAR(w.rhs_table.embeddings.row(0)[0], std::sqrt(0.5), 1e-6);
  EXPECT_EQ(w.lhs_table.embeddings.row(0)[0], 1);
  EXPECT_NEAR(scores.rhs_neg[1], 1, 1e-6);
}

TEST(FusedBatchStepTest, AllNegativesAreTheWholeTableInTiles) {
  ModelSpec spec = DotSpec(6);
  spec.relations[0].all_negs = true;
  spec.loss = Loss::kSoftmax;
  World w = Draw(spec, 5, 1300, 1);
  BatchScores scores;
  ASSERT_THAT(w.Step()->Score(w.batch(), w.negatives, w.tables(), &scores), IsOk());

  ASSERT_EQ(scores.rhs_num_neg, 1300);
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 1300; ++j) {
      double score = 0;
      for (int k = 0; k < 6; ++k) {
        score += double{w.lhs_table.embeddings.row(w.lhs[i])[k]} * w.rhs_table.embeddings.row(j)[k];
      }
      const float expected = j == w.rhs[i] ? -1e9f : static_cast<float>(score);
      ASSERT_NEAR(scores.rhs_neg[i * 1300 + j], expected, 1e-5);
    }
  }
}

TEST(FusedBatchStepTest, RefusesWhatIsNotBuiltInAndSaysWhatToDo) {
  const auto refused = [](ModelSpec spec, const std::string& what) {
    ParameterSet parameters;
    EXPECT_THAT(FusedBatchStepFactory().Make(spec, &parameters),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::AllOf(HasSubstr(what), HasSubstr("`compute: reference`"))));
    EXPECT_THAT(FusedBatchStepFactory().MakeParameters(spec),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  ModelSpec spec = DotSpec(2);
  spec.relations[0].op = Operator::kCustom;
  spec.relations[0].operator_name = "rotation";
  refused(spec, "relation likes: operator rotation");
  spec = DotSpec(2);
  spec.comparator = Comparator::kCustom;
  spec.comparator_name = "manhattan";
  refused(spec, "comparator manhattan");
  spec = DotSpec(2);
  spec.loss = Loss::kCustom;
  spec.loss_name = "hinge";
  refused(spec, "loss_fn hinge");
}

TEST(FusedBatchStepTest, RefusesAnOddDimensionForComplexDiagonal) {
  ModelSpec spec = DotSpec(3);
  spec.relations[0].op = Operator::kComplexDiagonal;
  ParameterSet parameters;
  EXPECT_THAT(FusedBatchStepFactory().Make(spec, &parameters),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("even dimension, not 3")));
}

TEST(FusedBatchStepTest, RefusesParametersOfAnotherModel) {
  ModelSpec spec = DotSpec(4);
  spec.relations[0].op = Operator::kAffine;
  spec.global_emb = true;
  ParameterSet none;
  EXPECT_THAT(FusedBatchStepFactory().Make(spec, &none),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("relations/0/operator/rhs/linear_transformation")));
  ModelSpec wider = spec;
  for (EntityTypeSpec& type : wider.entity_types) type.dimension = 6;
  ParameterSet other = MakeInitialParameters(wider);
  EXPECT_THAT(FusedBatchStepFactory().Make(spec, &other),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("1 x 36")));
}

bool AllFinite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float x) { return std::isfinite(x); });
}

TEST(FusedBatchStepTest, NumberThatIsNotFiniteIsNamedAndGetsNowhere) {
  ModelSpec spec = DotSpec(20);
  spec.num_dynamic_relations = 40;
  spec.relations[0].op = Operator::kComplexDiagonal;
  spec.loss = Loss::kSoftmax;
  spec.num_batch_negs = 5;
  spec.num_uniform_negs = 3;
  World w = Draw(spec, 20, 50, 1);
  w.rel.assign(20, 4);
  w.rel[12] = 31;
  w.lhs[12] = 49;  // of this edge alone
  std::ranges::replace(w.lhs, 49, 48);
  w.lhs[12] = 49;
  std::ranges::replace(w.negatives.lhs, 49, 48);
  const std::unique_ptr<BatchStep> step = w.Step();
  const float before = w.lhs_table.embeddings.row(49)[3];
  w.lhs_table.embeddings.row(49)[3] = std::numeric_limits<float>::quiet_NaN();
  const FloatBlock parameter = w.parameters.all()[0].values.Clone();

  // The row is a candidate of its whole chunk, so the edge named is one of edges 10 to 14.
  EXPECT_THAT(w.Train(step.get()), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("relation ")));
  // Rows of other chunks may have made their step.
  EXPECT_TRUE(std::isnan(w.lhs_table.embeddings.row(49)[3]));
  w.lhs_table.embeddings.row(49)[3] = before;
  for (const EmbeddingPartition* table : {&w.lhs_table, &w.rhs_table}) {
    EXPECT_TRUE(AllFinite(table->embeddings.span()));
    EXPECT_TRUE(AllFinite(table->adagrad_sums.span()));
  }
  EXPECT_EQ(w.lhs_table.adagrad_sums.span()[49], 0);
  EXPECT_EQ(w.parameters.steps, 0);
  EXPECT_THAT(w.parameters.all()[0].values.span(), Pointwise(::testing::Eq(), parameter.span()));
  EXPECT_THAT(w.Train(step.get()), IsOk());
}

TEST(FusedBatchStepTest, GradientThatOverflowsIsNoticed) {
  World w = TwoEdges();
  w.spec.loss = Loss::kLogistic;
  // Scores are finite, but 3e38 times a weight of 100 is not.
  w.weight = {100, 100};
  std::ranges::copy(std::vector<float>{1e-38f, 0, 1e-38f, 0}, w.lhs_table.embeddings.data());
  std::ranges::copy(std::vector<float>{3e38f, 0, -3e38f, 0}, w.rhs_table.embeddings.data());
  const EmbeddingPartition before = w.lhs_table.Clone();
  const std::unique_ptr<BatchStep> step = w.Step();

  EXPECT_THAT(w.Train(step.get()),
              StatusIs(absl::StatusCode::kOutOfRange,
                       ::testing::AllOf(HasSubstr("a gradient"), HasSubstr("relation likes"))));
  EXPECT_THAT(w.lhs_table.embeddings.span(), Pointwise(::testing::Eq(), before.embeddings.span()));
}

// The edges of the batch do not have the row, so there is no relation to name.
TEST(FusedBatchStepTest, GradientOfANegativeThatOverflowsIsNamedByItsRow) {
  World w = TwoEdges();
  w.spec.num_dynamic_relations = 3;
  w.spec.num_batch_negs = 0;
  w.spec.num_uniform_negs = 1;
  w.spec.disable_lhs_negs = true;
  // All scores are 0; the negative's gradient is the sum of both left-hand rows.
  std::ranges::copy(std::vector<float>{2e38f, 0, 2e38f, 0}, w.lhs_table.embeddings.data());
  w.rhs_table = EmbeddingPartition(4, 2);
  w.negatives.rhs = {3, 3};  // a chunk has as many edges as negatives
  const std::unique_ptr<BatchStep> step = w.Step();

  EXPECT_THAT(w.Train(step.get()),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("the gradient of row 3 of item, a negative, is not finite")));
}

ModelSpec ComplexSpec() {
  ModelSpec spec = DotSpec(20);
  spec.num_dynamic_relations = 7;
  spec.relations[0].op = Operator::kComplexDiagonal;
  spec.relations[0].rhs = 0;
  spec.loss = Loss::kSoftmax;
  spec.num_batch_negs = 10;
  spec.num_uniform_negs = 7;
  spec.regularization_coef = 1e-3;
  spec.lr = 0.1f;
  return spec;
}

TEST(FusedBatchStepTest, StepHasTheSameBitsWhateverWasComputedBefore) {
  World fresh = Draw(ComplexSpec(), 95, 60, 1);
  World used = Draw(ComplexSpec(), 95, 60, 1);
  World other = Draw(ComplexSpec(), 33, 60, 2);
  const std::unique_ptr<BatchStep> fresh_step = fresh.Step();
  auto used_step = FusedBatchStepFactory().Make(used.spec, &used.parameters);
  ASSERT_THAT(used_step, IsOk());
  // Gradients leave nothing behind but the workspace.
  ASSERT_THAT((*used_step)->Gradients(other.batch(), other.negatives, other.tables()), IsOk());
  ASSERT_THAT(fresh.Train(fresh_step.get()), IsOk());
  ASSERT_THAT(used.Train(used_step->get()), IsOk());

  EXPECT_THAT(used.lhs_table.embeddings.span(),
              Pointwise(::testing::Eq(), fresh.lhs_table.embeddings.span()));
  EXPECT_THAT(used.parameters.all()[0].values.span(),
              Pointwise(::testing::Eq(), fresh.parameters.all()[0].values.span()));
}

TEST(FusedBatchStepTest, RelationsOfDifferentDimensionsAlternate) {
  ModelSpec spec = DotSpec(100);
  spec.entity_types.push_back({"tag", 6});
  spec.relations.push_back({.name = "has", .lhs = 2, .rhs = 2, .operator_name = "none"});
  spec.loss = Loss::kSoftmax;
  spec.num_batch_negs = 5;
  spec.num_uniform_negs = 3;
  World wide = Draw(spec, 20, 30, 1);
  World again = Draw(spec, 20, 30, 1);
  World narrow = Draw(spec, 20, 30, 1);
  narrow.lhs_table = EmbeddingPartition(30, 6);
  narrow.shared = true;
  narrow.rel.assign(20, 1);
  const std::unique_ptr<BatchStep> step = wide.Step();
  const std::unique_ptr<BatchStep> reference = again.Step();
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(wide.Train(step.get()), IsOk());
    ASSERT_THAT(narrow.Train(step.get()), IsOk());
    ASSERT_THAT(again.Train(reference.get()), IsOk());
  }
  EXPECT_THAT(wide.lhs_table.embeddings.span(),
              Pointwise(::testing::Eq(), again.lhs_table.embeddings.span()));
}

TEST(FusedBatchStepTest, LossGoesDown) {
  for (const bool dynamic : {false, true}) {
    ModelSpec spec = ComplexSpec();
    if (!dynamic) spec.num_dynamic_relations = 0;
    World w = Draw(spec, 95, 60, 1);
    w.shared = true;
    const std::unique_ptr<BatchStep> step = w.Step();
    const auto first = w.Train(step.get());
    absl::StatusOr<BatchStats> last = first;
    for (int i = 0; i < 50; ++i) last = w.Train(step.get());
    ASSERT_THAT(last, IsOk());
    EXPECT_LT(last->loss, first->loss / 2);
  }
}

// What a step writes it marks, and nothing else: the parameter servers learn of marked rows only.
TEST(FusedBatchStepTest, RowsThatChangeAreMarked) {
  ModelSpec spec = ComplexSpec();
  spec.global_emb = true;
  spec.max_norm = 0.5f;
  World w = Draw(spec, 5, 60, 1);
  for (Parameter& p : w.parameters.all()) {
    p.changed.assign(static_cast<size_t>(p.values.rows()), 0);
  }
  ChangedRows changed[2] = {ChangedRows(60), ChangedRows(60)};
  BatchTables tables = w.tables();
  tables.lhs.changed = changed[0].data();
  tables.rhs.changed = changed[1].data();
  const World before = Draw(spec, 5, 60, 1);

  ASSERT_THAT(w.Step()->Train(w.batch(), w.negatives, tables), IsOk());

  auto rows_that_differ = [](const FloatBlock& a, const FloatBlock& b) {
    ChangedRows differ(static_cast<size_t>(a.rows()));
    for (int64_t row = 0; row < a.rows(); ++row) {
      differ[static_cast<size_t>(row)] = !std::ranges::equal(a.row(row), b.row(row));
    }
    return differ;
  };
  EXPECT_EQ(changed[0], rows_that_differ(w.lhs_table.embeddings, before.lhs_table.embeddings));
  EXPECT_EQ(changed[1], rows_that_differ(w.rhs_table.embeddings, before.rhs_table.embeddings));
  int64_t marked = 0;
  for (size_t i = 0; i < w.parameters.all().size(); ++i) {
    const Parameter& p = w.parameters.all()[i];
    EXPECT_EQ(p.changed, rows_that_differ(p.values, before.parameters.all()[i].values)) << p.name;
    marked += std::ranges::count(p.changed, 1);
  }
  EXPECT_GT(marked, 2);
}

// Under ThreadSanitizer: nothing but row_ops races.
TEST(FusedBatchStepTest, ThreadsTrainOneTableWithoutLocks) {
  World shared = Draw(ComplexSpec(), 95, 60, 1);
  shared.shared = true;
  std::vector<double> losses(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      const std::unique_ptr<BatchStep> step = shared.Step();
      World mine = Draw(ComplexSpec(), 95, 60, 10 + static_cast<uint64_t>(t));
      for (int i = 0; i < 30; ++i) {
        const auto stats = step->Train(mine.batch(), mine.negatives, shared.tables());
        ASSERT_THAT(stats, IsOk());
        losses[t] = stats->loss;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const double loss : losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_EQ(shared.parameters.steps, 60);
}

TEST(FusedBatchStepTest, TrainsWithoutAllocatingOnceItHasItsWorkspace) {
  if (!testing::CountsAllocations()) GTEST_SKIP() << "a sanitizer allocates for itself";
  for (const bool dynamic : {false, true}) {
    ModelSpec spec = ComplexSpec();
    if (!dynamic) spec.num_dynamic_relations = 0;
    World w = Draw(spec, 95, 60, 1);
    w.shared = true;
    const std::unique_ptr<BatchStep> step = w.Step();
    for (int i = 0; i < 2; ++i) ASSERT_THAT(w.Train(step.get()), IsOk());
    const int64_t before = testing::NumAllocations();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(w.Train(step.get()).ok());
    EXPECT_EQ(testing::NumAllocations(), before);
  }
}

}  // namespace
}  // namespace weft
