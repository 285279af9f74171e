// --set KEY=VALUE.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/config_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;

TEST(OverrideTest, SetsNumbersBooleansAndStrings) {
  const auto result =
      ParseSmall({"lr=0.5", "bias=true", "comparator=dot", "seed=18446744073709551615"});

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.lr, 0.5);
  EXPECT_TRUE(result->config.bias);
  EXPECT_EQ(result->config.comparator, "dot");
  EXPECT_EQ(result->config.seed, 18446744073709551615u);
}

TEST(OverrideTest, IsSplitAtTheFirstEqualsSign) {
  const auto result = ParseSmall({"entity_path=/data/a=b/x=y"});

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.entity_path, "/data/a=b/x=y");
}

TEST(OverrideTest, ReachesIntoObjectsAndLists) {
  const auto result = ParseSmall(
      {"entities.user.num_partitions=4", "relations.1.operator=diagonal", "relations.0.weight=2"});

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.entities[0].num_partitions, 4);
  EXPECT_EQ(result->config.relations[1].operator_name, "diagonal");
  EXPECT_EQ(result->config.relations[0].weight, 2);
}

TEST(OverrideTest, ListsOfStringsAreSeparatedByCommasOrJson) {
  const auto commas = ParseSmall({"edge_paths=a,b"});
  const auto json = ParseSmall({R"(edge_paths=["a,b", "c"])"});

  ASSERT_THAT(commas, IsOk());
  EXPECT_THAT(commas->config.edge_paths, ElementsAre("a", "b"));
  ASSERT_THAT(json, IsOk());
  EXPECT_THAT(json->config.edge_paths, ElementsAre("a,b", "c"));
}

TEST(OverrideTest, OneElementOfAListOfStringsCanBeSet) {
  const auto result = ParseSmall({"edge_paths=a,b", "edge_paths.1=c"});

  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->config.edge_paths, ElementsAre("a", "c"));
}

TEST(OverrideTest, ObjectsAreJson) {
  const auto result = ParseSmall({R"(relations=[{"name": "r", "lhs": "item", "rhs": "item"}])",
                                  R"(entities={"item": {"num_partitions": 2}})"});

  ASSERT_THAT(result, IsOk());
  ASSERT_EQ(result->config.entities.size(), 1u);
  EXPECT_EQ(result->config.entities[0].num_partitions, 2);
  EXPECT_EQ(result->config.relations.size(), 1u);
}

TEST(OverrideTest, NullClearsWhatMayBeNull) {
  const auto result = ParseSmall({"eval_num_batch_negs=null", "init_path=x", "init_path=null"});

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.eval_num_batch_negs, std::nullopt);
  EXPECT_EQ(result->config.init_path, std::nullopt);
  EXPECT_THAT(ProblemsWith({"lr=null"}), HasSubstr("lr: must not be null"));
}

TEST(OverrideTest, QuotedStringsAreJson) {
  const auto result = ParseSmall({R"(entity_path="null")", R"(checkpoint_path="a\tb")"});

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.entity_path, "null");
  EXPECT_EQ(result->config.checkpoint_path, "a\tb");
}

TEST(OverrideTest, AnAbsentObjectThatMayBeNullIsMade) {
  const auto result = ParseSmall({"early_stopping.patience=3", "early_stopping.metric=mrr"});

  ASSERT_THAT(result, IsOk());
  ASSERT_TRUE(result->config.early_stopping.has_value());
  EXPECT_EQ(result->config.early_stopping->patience, 3);
  EXPECT_EQ(result->config.early_stopping->metric, EarlyStoppingMetric::kMrr);
}

TEST(OverrideTest, TheLastOneOfAKeyCounts) {
  const auto result = ParseSmall({"lr=1", "lr=2"});

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.lr, 2);
}

TEST(OverrideTest, MendsWhatIsWrongInTheFile) {
  const auto result = ParseRunConfig(R"({
    "entities": {"user": {}}, "relations": [{"name": "r", "lhs": "user", "rhs": "user"}],
    "dimension": "eight", "entity_path": "e", "edge_paths": ["p"], "checkpoint_path": "c"})",
                                     "run.json", {{"dimension=8"}});

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.dimension, 8);
}

TEST(OverrideTest, ProblemsNameTheOverride) {
  EXPECT_EQ(ProblemsWith({"lr=-1"}), "--set lr=-1: lr: must be >= 0, is -1");
  EXPECT_EQ(ProblemsWith({"lr=fast"}),
            "--set lr=fast: lr: must be a number, is the string \"fast\"");
}

TEST(OverrideTest, AProblemBetweenKeysNamesTheOverride) {
  EXPECT_THAT(ProblemsWith({"num_batch_negs=70"}), HasSubstr("batch_size"));
  EXPECT_THAT(ProblemsWith({"batch_size=70"}), HasSubstr("--set batch_size=70: batch_size: "));
}

TEST(OverrideTest, UnknownKeysNameTheNearest) {
  EXPECT_THAT(ProblemsWith({"dimensoin=9"}), HasSubstr("did you mean \"dimension\"?"));
  EXPECT_THAT(ProblemsWith({"entities.usr.num_partitions=2"}),
              HasSubstr("entities.usr: no such name; did you mean \"user\"?"));
  EXPECT_THAT(ProblemsWith({"entities.user.partitions=2"}), HasSubstr("\"num_partitions\""));
}

TEST(OverrideTest, PathsThatLeadNowhereAreRefused) {
  EXPECT_THAT(ProblemsWith({"relations.2.weight=1"}),
              HasSubstr("relations[2]: no such index: the list has 2 elements"));
  EXPECT_THAT(ProblemsWith({"relations.-1.weight=1"}), HasSubstr("no such index"));
  EXPECT_THAT(ProblemsWith({"lr.x=1"}), HasSubstr("lr: has nothing below it, such as \"x\""));
  EXPECT_THAT(ProblemsWith({"edge_paths.0.x=1"}), HasSubstr("has nothing below it"));
  EXPECT_THAT(ProblemsWith({"=1"}), HasSubstr("is not of the form key=value"));
  EXPECT_THAT(ProblemsWith({"lr"}), HasSubstr("is not of the form key=value"));
  EXPECT_THAT(ProblemsWith({"relations.=1"}), HasSubstr("no such index"));
  EXPECT_THAT(ProblemsWith({"entities.user.name=x"}), HasSubstr("unknown key"));
}

TEST(OverrideTest, BadJsonIsTold) {
  EXPECT_THAT(ProblemsWith({"relations=[{"}),
              HasSubstr("relations: the value:1:3: not valid JSON"));
  EXPECT_THAT(ProblemsWith({"edge_paths=[1"}), HasSubstr("not valid JSON"));
}

TEST(OverrideTest, EmptyValuesAreRefusedWhereSomethingIsNeeded) {
  EXPECT_THAT(ProblemsWith({"entity_path="}), HasSubstr("entity_path: must not be empty"));
  EXPECT_THAT(ProblemsWith({"edge_paths="}), HasSubstr("edge_paths: must not be empty"));
  EXPECT_THAT(ProblemsWith({"lr="}), HasSubstr("lr: must be a number"));
}

TEST(OverrideTest, AllProblemsAreTold) {
  EXPECT_THAT(
      ProblemsWith({"lr=x", "foo=1", "margin=-1"}),
      AllOf(HasSubstr("3 problems"), HasSubstr("lr: "), HasSubstr("foo: "), HasSubstr("margin: ")));
}

}  // namespace
}  // namespace weft
