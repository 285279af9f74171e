#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "services/trainer/fused/fused_batch_step.h"
#include "services/trainer/ranking.h"
#include "tests/testing/status_matchers.h"
#include "tests/trainer/evaluation_world.h"

namespace weft {

void PrintTo(const CandidateCounts& counts, std::ostream* out) {
  *out << "{candidates " << counts.candidates << ", above " << counts.above << ", ties "
       << counts.ties << "}";
}

namespace {

using ::testing::AllOf;
using testing::FillWithNormals;
using testing::FillWithQuarters;
using ::testing::HasSubstr;
using testing::MakeDynamicWorld;
using testing::PartitionedWorld;
using testing::RankByBruteForce;
using testing::StatusIs;
using testing::World;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void ExpectSameCounts(const std::vector<EdgeCounts>& actual,
                      const std::vector<EdgeCounts>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t e = 0; e < expected.size(); ++e) {
    SCOPED_TRACE(e);
    for (const Side side : kSides) {
      const int s = static_cast<int>(side);
      ASSERT_EQ(actual[e].raw[s], expected[e].raw[s]) << "raw, side " << s;
      ASSERT_EQ(actual[e].filtered[s], expected[e].filtered[s]) << "filtered, side " << s;
    }
  }
}

// Users like and know items: static relations between two entity types, with operators.
World MakeStaticWorld(uint32_t seed) {
  std::mt19937 random(seed);
  World world;
  world.spec.entity_types = {{"user", 6}, {"item", 6}};
  world.spec.relations = {
      {.name = "likes", .lhs = 0, .rhs = 1, .op = Operator::kDiagonal},
      {.name = "knows", .lhs = 0, .rhs = 0, .op = Operator::kNone},
      {.name = "sees", .lhs = 0, .rhs = 1, .op = Operator::kDiagonal},
  };
  world.spec.comparator = Comparator::kDot;
  world.spec.global_emb = false;
  world.parameters = MakeInitialParameters(world.spec);
  for (Parameter& p : world.parameters.all()) FillWithQuarters(&random, p.values.span());
  FillWithQuarters(&random, world.vectors.emplace_back(90, 6).span());
  FillWithQuarters(&random, world.vectors.emplace_back(900, 6).span());
  for (int i = 0; i < 300; ++i) {
    const auto rel = static_cast<RelationTypeId>(random() % 3);
    const int64_t lhs = random() % 90;
    const int64_t rhs = random() % (rel == 1 ? 90 : 900);
    (i % 3 == 0 ? world.known : world.edges).push_back({lhs, rhs, rel});
  }
  return world;
}

TEST(RankEdgesTest, DynamicRelationsAgreeWithBruteForce) {
  const World world = MakeDynamicWorld(1, 1700, 5, 6, 150, Comparator::kDot, FillWithQuarters);

  const auto counts = PartitionedWorld(world, 3).Rank(world, {.num_threads = 2});

  ExpectSameCounts(counts.value(), RankByBruteForce(world));
}

TEST(RankEdgesTest, SquaredDistancesAgreeWithBruteForce) {
  const World world = MakeDynamicWorld(2, 800, 3, 4, 100, Comparator::kSquaredL2, FillWithQuarters);

  const auto counts = PartitionedWorld(world, 1).Rank(world, {});

  ExpectSameCounts(counts.value(), RankByBruteForce(world));
}

// |a|^2 + |b|^2 - 2ab would lose these distances: they are less than the last bit of the norms.
TEST(RankEdgesTest, CloseVectorsFarFromTheOriginAreToldApart) {
  const auto fill = [](std::mt19937* random, std::span<float> values) {
    FillWithQuarters(random, values);
    for (float& value : values) value = 1000 + value / 16;
  };
  World world = MakeDynamicWorld(21, 800, 1, 4, 100, Comparator::kSquaredL2, fill);
  for (Parameter& p : world.parameters.all()) std::ranges::fill(p.values.span(), 1.0f);
  const std::vector<EdgeCounts> expected = RankByBruteForce(world);

  for (const Comparator comparator : {Comparator::kSquaredL2, Comparator::kL2}) {
    SCOPED_TRACE(static_cast<int>(comparator));
    world.spec.comparator = comparator;
    const auto counts = PartitionedWorld(world, 2).Rank(world, {});
    ExpectSameCounts(counts.value(), expected);
  }
}

TEST(RankEdgesTest, StaticRelationsRankTheRightTypeWithTheOperatorOnTheRight) {
  const World world = MakeStaticWorld(3);

  const auto counts = PartitionedWorld(world, 2).Rank(world, {.num_threads = 2});

  ExpectSameCounts(counts.value(), RankByBruteForce(world));
}

RankingOptions ThroughBatchSteps(World* world, const BatchStepFactory& factory) {
  RankingOptions options;
  options.num_threads = 2;
  options.make_scorer = [world, &factory] {
    return BatchStepRankingScorer::Make(factory, world->spec, &world->parameters);
  };
  return options;
}

TEST(BatchStepRankingScorerTest, DynamicRelationsAgreeWithBruteForce) {
  const FusedBatchStepFactory factory;
  World world = MakeDynamicWorld(1, 1700, 5, 6, 150, Comparator::kDot, FillWithQuarters);

  const auto counts = PartitionedWorld(world, 3).Rank(world, ThroughBatchSteps(&world, factory));

  ExpectSameCounts(counts.value(), RankByBruteForce(world));
}

TEST(BatchStepRankingScorerTest, StaticRelationsAgreeWithBruteForce) {
  const FusedBatchStepFactory factory;
  World world = MakeStaticWorld(3);

  const auto counts = PartitionedWorld(world, 2).Rank(world, ThroughBatchSteps(&world, factory));

  ExpectSameCounts(counts.value(), RankByBruteForce(world));
}

TEST(BatchStepRankingScorerTest, TheConfigurationsOwnNegativesDoNotMatter) {
  const FusedBatchStepFactory factory;
  World world = MakeStaticWorld(4);
  world.spec.relations[0].all_negs = true;
  world.spec.disable_lhs_negs = true;

  const auto counts = PartitionedWorld(world, 1).Rank(world, ThroughBatchSteps(&world, factory));

  ExpectSameCounts(counts.value(), RankByBruteForce(world));
}

TEST(RankEdgesTest, OnlyTheSidesAskedForAreRanked) {
  const World world = MakeStaticWorld(4);
  const std::vector<Side> tails = {Side::kRhs};

  const auto counts = PartitionedWorld(world, 1).Rank(world, {}, tails);

  ExpectSameCounts(counts.value(), RankByBruteForce(world, tails));
}

TEST(RankEdgesTest, RanksAreEqualForEveryNumberOfPartitions) {
  for (const Comparator comparator :
       {Comparator::kDot, Comparator::kCos, Comparator::kL2, Comparator::kSquaredL2}) {
    SCOPED_TRACE(static_cast<int>(comparator));
    const World world = MakeDynamicWorld(5, 1600, 7, 50, 200, comparator, FillWithNormals);

    const auto whole = PartitionedWorld(world, 1).Rank(world, {.num_threads = 2});

    for (const int num_partitions : {2, 8}) {
      SCOPED_TRACE(num_partitions);
      const auto split = PartitionedWorld(world, num_partitions).Rank(world, {.num_threads = 2});
      ExpectSameCounts(split.value(), whole.value());
    }
  }
}

TEST(RankEdgesTest, RanksDoNotDependOnThreadsAndBatches) {
  const World world = MakeDynamicWorld(6, 1600, 7, 50, 400, Comparator::kDot, FillWithNormals);
  PartitionedWorld parts(world, 2);

  const auto expected = parts.Rank(world, {});

  for (const int num_threads : {1, 2, 5}) {
    for (const int64_t query_bytes : {int64_t{0}, int64_t{64 * 50 * 4 * 3}}) {
      SCOPED_TRACE(absl::StrCat(num_threads, " threads, ", query_bytes, " bytes"));
      const auto counts =
          parts.Rank(world, {.num_threads = num_threads, .query_bytes = query_bytes});
      ExpectSameCounts(counts.value(), expected.value());
    }
  }
}

TEST(RankEdgesTest, EqualScoresAreTies) {
  World world = MakeDynamicWorld(7, 6, 1, 4, 1, Comparator::kDot, FillWithNormals);
  std::ranges::fill(world.vectors[0].span(), 0.5f);
  world.known.clear();

  const auto counts = PartitionedWorld(world, 2).Rank(world, {});

  for (const int side : {0, 1}) {
    EXPECT_EQ(counts.value()[0].raw[side], (CandidateCounts{.candidates = 5, .ties = 5}));
  }
}

TEST(RankEdgesTest, KnownEdgeOfAnotherSetIsNotCountedAgainstTheEvaluatedOne) {
  // Scores of (0, r, x) are x's value: 3 for the answer, 5, 4 and 1 for the others.
  World world = MakeDynamicWorld(8, 5, 1, 2, 0, Comparator::kDot, FillWithQuarters);
  for (Parameter& p : world.parameters.all()) std::ranges::fill(p.values.span(), 1.0f);
  std::ranges::fill(world.vectors[0].span(), 0.0f);
  const float values[] = {1, 3, 5, 4, 1};
  for (int i = 0; i < 5; ++i) world.vectors[0].row(i)[0] = values[i];
  world.edges = {{.lhs = 0, .rhs = 1, .rel = 0}};
  const std::vector<Side> tails = {Side::kRhs};
  const IndexedEdge in_training{.lhs = 0, .rhs = 2, .rel = 0};
  const IndexedEdge in_validation{.lhs = 0, .rhs = 3, .rel = 0};

  world.known = {in_training};
  const auto without = PartitionedWorld(world, 1).Rank(world, {}, tails);
  world.known = {in_training, in_validation};
  const auto with = PartitionedWorld(world, 1).Rank(world, {}, tails);

  EXPECT_EQ(without.value()[0].raw[1], (CandidateCounts{.candidates = 4, .above = 2}));
  EXPECT_EQ(without.value()[0].filtered[1], (CandidateCounts{.candidates = 3, .above = 1}));
  EXPECT_EQ(with.value()[0].raw[1], (CandidateCounts{.candidates = 4, .above = 2}));
  EXPECT_EQ(with.value()[0].filtered[1], (CandidateCounts{.candidates = 2, .above = 0}));
}

TEST(RankEdgesTest, OneEntityHasNoCandidates) {
  World world = MakeDynamicWorld(9, 1, 1, 4, 1, Comparator::kDot, FillWithNormals);

  const auto counts = PartitionedWorld(world, 1).Rank(world, {});

  EXPECT_EQ(counts.value()[0].raw[1], CandidateCounts{});
  EXPECT_EQ(counts.value()[0].filtered[0], CandidateCounts{});
}

TEST(RankEdgesTest, NoEdgesAreNoWork) {
  World world = MakeDynamicWorld(10, 5, 1, 4, 0, Comparator::kDot, FillWithNormals);
  PartitionedWorld parts(world, 1);

  EXPECT_TRUE(parts.Rank(world, {}).value().empty());
  EXPECT_EQ(parts.tables.reads(), 0);
}

TEST(RankEdgesTest, OnePartitionIsHeldAtATime) {
  const World world = MakeDynamicWorld(11, 400, 3, 8, 100, Comparator::kDot, FillWithNormals);
  PartitionedWorld parts(world, 8);

  ASSERT_THAT(parts.Rank(world, {.num_threads = 2}), testing::IsOk());

  EXPECT_EQ(parts.tables.most_held(), 1);
}

TEST(RankEdgesTest, ATableThatIsNotFiniteIsRefused) {
  const World world = MakeDynamicWorld(12, 400, 3, 8, 50, Comparator::kDot, FillWithNormals);
  PartitionedWorld parts(world, 2);
  parts.tables.table({0, 1}).row(17)[3] = kNan;

  EXPECT_THAT(parts.Rank(world, {.num_threads = 2}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("entity type all, partition 1: row 17 is not finite "
                                 "(coordinate 3 is nan)")));
}

TEST(RankEdgesTest, AnAllNanTableIsRefused) {
  World world = MakeDynamicWorld(13, 400, 3, 8, 50, Comparator::kDot, FillWithNormals);
  std::ranges::fill(world.vectors[0].span(), kNan);

  EXPECT_THAT(PartitionedWorld(world, 1).Rank(world, {}), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(RankEdgesTest, AParameterThatIsNotFiniteIsRefused) {
  World world = MakeDynamicWorld(14, 40, 3, 8, 50, Comparator::kDot, FillWithNormals);
  world.parameters.all()[1].values.data()[9] = -std::numeric_limits<float>::infinity();

  EXPECT_THAT(PartitionedWorld(world, 1).Rank(world, {}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("relations/0/operator/rhs/diagonals: element 9 is -inf")));
}

TEST(RankEdgesTest, AScoreThatOverflowsIsRefusedAndNamed) {
  World world = MakeDynamicWorld(15, 40, 1, 2, 0, Comparator::kDot, FillWithQuarters);
  for (Parameter& p : world.parameters.all()) std::ranges::fill(p.values.span(), 1.0f);
  world.edges = {{.lhs = 3, .rhs = 4, .rel = 0}};
  std::ranges::fill(world.vectors[0].row(3), 1e30f);
  std::ranges::fill(world.vectors[0].row(21), 1e30f);

  EXPECT_THAT(PartitionedWorld(world, 1).Rank(world, {}, std::vector<Side>{Side::kRhs}),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("relation 0"), HasSubstr("row 3"), HasSubstr("is inf"))));
}

TEST(RankEdgesTest, SamplesAreAFunctionOfTheSeed) {
  const World world = MakeDynamicWorld(16, 900, 3, 8, 300, Comparator::kDot, FillWithNormals);
  PartitionedWorld parts(world, 4);
  const RankingOptions options{.sampled_candidates = 50, .seed = 1};

  const auto first = parts.Rank(world, options);
  RankingOptions other_schedule = options;
  other_schedule.num_threads = 3;
  other_schedule.query_bytes = 0;
  const auto second = parts.Rank(world, other_schedule);
  RankingOptions other_seed = options;
  other_seed.seed = 2;
  const auto third = parts.Rank(world, other_seed);

  ExpectSameCounts(second.value(), first.value());
  EXPECT_NE(third.value(), first.value());
}

TEST(RankEdgesTest, SampleHasTheAskedSizeWithoutTheAnswerItself) {
  const World world = MakeDynamicWorld(17, 900, 3, 8, 300, Comparator::kDot, FillWithNormals);

  const auto counts = PartitionedWorld(world, 2).Rank(world, {.sampled_candidates = 50});

  for (const EdgeCounts& edge : counts.value()) {
    for (const int side : {0, 1}) {
      EXPECT_THAT(edge.raw[side].candidates, ::testing::AnyOf(49, 50));
      EXPECT_LE(edge.filtered[side].candidates, edge.raw[side].candidates);
      EXPECT_LE(edge.filtered[side].above, edge.raw[side].above);
    }
  }
}

TEST(RankEdgesTest, SampledRanksEstimateTheFullOnes) {
  const World world = MakeDynamicWorld(18, 2000, 3, 8, 1000, Comparator::kDot, FillWithNormals);
  PartitionedWorld parts(world, 2);

  const auto all = parts.Rank(world, {.num_threads = 2});
  const auto sampled = parts.Rank(world, {.num_threads = 2, .sampled_candidates = 200});

  std::vector<CandidateCounts> all_tails;
  std::vector<CandidateCounts> sampled_tails;
  for (size_t e = 0; e < world.edges.size(); ++e) {
    all_tails.push_back(all.value()[e].raw[1]);
    sampled_tails.push_back(sampled.value()[e].raw[1]);
  }
  // AUC is an average over candidates, so a sample of them is unbiased.
  EXPECT_NEAR(ComputeMetrics(sampled_tails).auc.value(), ComputeMetrics(all_tails).auc.value(),
              0.01);
}

TEST(RankEdgesTest, ASampleAsLargeAsTheTypeIsEverybody) {
  const World world = MakeDynamicWorld(19, 300, 3, 8, 100, Comparator::kDot, FillWithNormals);
  PartitionedWorld parts(world, 2);

  const auto all = parts.Rank(world, {});
  const auto sampled = parts.Rank(world, {.sampled_candidates = 300});

  ExpectSameCounts(sampled.value(), all.value());
}

TEST(RankEdgesTest, ProgressEndsAtItsTotal) {
  const World world = MakeDynamicWorld(20, 900, 3, 8, 300, Comparator::kDot, FillWithNormals);
  std::vector<int64_t> done;
  int64_t total = 0;
  RankingOptions options;
  options.progress = [&](int64_t now, int64_t of) {
    done.push_back(now);
    total = of;
  };

  ASSERT_THAT(PartitionedWorld(world, 2).Rank(world, options), testing::IsOk());

  ASSERT_FALSE(done.empty());
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.back(), total);
}

}  // namespace
}  // namespace weft
