#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "services/trainer/edge_filter.h"
#include "services/trainer/entity_index.h"
#include "services/trainer/ranking_queries.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

ModelSpec OneTypeSpec(int64_t num_dynamic_relations) {
  ModelSpec spec;
  spec.entity_types = {{"all", 4}};
  spec.relations = {{.name = "r", .lhs = 0, .rhs = 0, .op = Operator::kDiagonal}};
  spec.num_dynamic_relations = num_dynamic_relations;
  return spec;
}

TEST(EntityIndexTest, NumbersEntitiesThroughPartitions) {
  const EntityIndex index({{3, 0, 2}, {7}});

  EXPECT_EQ(index.count(0), 5);
  EXPECT_EQ(index.begin(0, 2), 3);
  EXPECT_EQ(index.count(0, 1), 0);
  EXPECT_EQ(index.PositionOf(0, 2), (EntityPosition{0, 2}));
  EXPECT_EQ(index.PositionOf(0, 3), (EntityPosition{2, 0}));  // partition 1 is empty
  EXPECT_EQ(index.PositionOf(1, 6), (EntityPosition{0, 6}));
}

TEST(EntityIndexTest, TypeWithOnePartitionIsWholeInEveryBucket) {
  const EntityIndex index({{3, 0, 2}, {7}});

  EXPECT_EQ(index.InBucket(0, 2), 2);
  EXPECT_EQ(index.InBucket(1, 2), 0);
}

TEST(RankingQueriesTest, EdgesThatShareAQuestionAreAskedOnce) {
  const ModelSpec spec = OneTypeSpec(2);
  const std::vector<IndexedEdge> edges = {{.lhs = 1, .rhs = 9, .rel = 0},
                                          {.lhs = 1, .rhs = 5, .rel = 0},
                                          {.lhs = 2, .rhs = 5, .rel = 0},
                                          {.lhs = 1, .rhs = 9, .rel = 1}};

  const RankingQueries queries(spec, edges, std::vector<Side>{Side::kRhs});

  ASSERT_EQ(queries.queries().size(), 3);
  const RankingQuery& first = queries.queries()[0];
  EXPECT_EQ(first.rel, 0);
  EXPECT_EQ(first.known, 1);
  ASSERT_EQ(first.num_answers(), 2);
  EXPECT_EQ(queries.AnswersOf(first)[0].entity, 5);
  EXPECT_EQ(queries.AnswersOf(first)[0].edge, 1);
  EXPECT_EQ(queries.AnswersOf(first)[1].entity, 9);
  EXPECT_EQ(queries.queries()[1].known, 2);
  EXPECT_EQ(queries.queries()[2].rel, 1);
}

TEST(RankingQueriesTest, DynamicCandidatesAreOneSetForBothSides) {
  const ModelSpec spec = OneTypeSpec(2);
  const std::vector<IndexedEdge> edges = {{.lhs = 1, .rhs = 9, .rel = 0},
                                          {.lhs = 1, .rhs = 9, .rel = 1}};

  const RankingQueries queries(spec, edges, kSides);

  ASSERT_EQ(queries.queries().size(), 4);
  for (const RankingQuery& query : queries.queries()) {
    EXPECT_EQ(query.candidates, (CandidateSet{0, -1}));
  }
}

TEST(RankingQueriesTest, StaticOperatorMakesASetOfRightHandCandidatesPerRelation) {
  ModelSpec spec = OneTypeSpec(0);
  spec.relations.push_back(spec.relations[0]);

  EXPECT_EQ(CandidateSetOf(spec, 1, Side::kRhs), (CandidateSet{0, 1}));
  EXPECT_EQ(CandidateSetOf(spec, 1, Side::kLhs), (CandidateSet{0, -1}));
}

TEST(EdgeFilterTest, KeepsTheAnswersOfItsQuestionsOnce) {
  const ModelSpec spec = OneTypeSpec(2);
  const std::vector<IndexedEdge> edges = {{.lhs = 1, .rhs = 5, .rel = 0}};
  const RankingQueries queries(spec, edges, kSides);
  EdgeFilter filter(queries);

  filter.Add(std::vector<IndexedEdge>{{.lhs = 1, .rhs = 9, .rel = 0},
                                      {.lhs = 1, .rhs = 9, .rel = 0},    // twice
                                      {.lhs = 1, .rhs = 8, .rel = 1},    // another relation
                                      {.lhs = 3, .rhs = 5, .rel = 0},    // answers the other side
                                      {.lhs = 4, .rhs = 4, .rel = 0}});  // answers none
  filter.Finish();

  ASSERT_EQ(queries.queries().size(), 2);
  const bool lhs_first = queries.queries()[0].corrupted == Side::kLhs;
  EXPECT_THAT(filter.KnownAnswers(lhs_first ? 1 : 0), ElementsAre(5, 9));
  EXPECT_THAT(filter.KnownAnswers(lhs_first ? 0 : 1), ElementsAre(1, 3));
}

TEST(EdgeFilterTest, EvaluatedEdgesAreKnownWithoutBeingAdded) {
  const ModelSpec spec = OneTypeSpec(2);
  const RankingQueries queries(spec, std::vector<IndexedEdge>{{.lhs = 1, .rhs = 5, .rel = 0}},
                               std::vector<Side>{Side::kRhs});
  EdgeFilter filter(queries);

  filter.Finish();

  EXPECT_THAT(filter.KnownAnswers(0), ElementsAre(5));
}

}  // namespace
}  // namespace weft
