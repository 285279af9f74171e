// What must hold for and between the keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/config_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;
using ::testing::StartsWith;
using testing::StatusIs;

TEST(ConfigRangesTest, ValuesOutOfRangeAreRefused) {
  for (const char* wrong : {"lr=-1",
                            "relation_lr=-0.1",
                            "margin=-5",
                            "init_scale=0",
                            "init_scale=-1",

                            "max_norm=0",
                            "eval_fraction=7",
                            "eval_fraction=1",
                            "eval_fraction=-0.1",
                            "dimension=0",
                            "dimension=-3",
                            "dimension=2147483648",
                            "entities.user.num_partitions=0",
                            "entities.user.num_partitions=65537",
                            "entities.user.dimension=0",
                            "num_epochs=-1",
                            "num_edge_chunks=0",
                            "max_edges_per_chunk=0",
                            "workers=0",
                            "threads=0",
                            "threads=5000",
                            "batch_size=0",
                            "batch_size=-1000",
                            "num_batch_negs=-1",
                            "num_uniform_negs=-1",
                            "eval_num_batch_negs=-1",
                            "eval_num_uniform_negs=-1",
                            "regularization_coef=-1e-3",
                            "verbose=-1",
                            "hogwild_delay=-1",
                            "num_machines=0",
                            "relations.0.weight=0",
                            "relations.0.weight=-1",
                            "resident_partitions=1",
                            "commit_seconds=-1",
                            "lease_seconds=0",
                            "stall_timeout=-1",
                            "max_bucket_attempts=-1",
                            "partition_replicas=0",
                            "store_lost_after=-1",
                            "checkpoint_minutes=-1",
                            "partition_shard_size=0",
                            "param_sync.interval=-1",
                            "param_sync.max_bytes_per_second=-1",
                            "param_sync.max_bytes_per_second=65535",
                            "max_param_staleness=-1",
                            "seed=-1",
                            "seed=18446744073709551616",
                            "checkpoint_preservation_interval=0",
                            "early_stopping.patience=0"}) {
    EXPECT_THAT(ProblemsWith({wrong}), HasSubstr("must be ")) << wrong;
  }
}

TEST(ConfigRangesTest, NumbersFitThirtyTwoBits) {
  EXPECT_THAT(ProblemsWith({"lr=1e39"}), HasSubstr("too large for a 32-bit number"));
  EXPECT_THAT(ProblemsWith({"init_scale=1e-60"}), HasSubstr("too small for a 32-bit number"));
}

TEST(ConfigRangesTest, LimitsAreAllowed) {
  for (const char* right : {"lr=0", "margin=0", "eval_fraction=0", "eval_fraction=0.999",
                            "num_epochs=0", "init_scale=1e-30", "dimension=1", "num_uniform_negs=0",
                            "num_batch_negs=0", "regularization_coef=0", "seed=0", "verbose=3"}) {
    EXPECT_THAT(ParseSmall({right}), IsOk()) << right;
  }
}

TEST(ConfigEdgePathsTest, AreFoldersOrHeldByTheClusterByName) {
  EXPECT_THAT(ParseSmall({"edge_paths=cluster://train,cluster://v-2.x_y"}), IsOk());
  EXPECT_THAT(ProblemsWith({"edge_paths=cluster://train,edges"}),
              HasSubstr("all edges are held by the cluster (cluster://NAME), or none"));
  EXPECT_THAT(ProblemsWith({"edge_paths=edges,cluster://train"}), HasSubstr("or none"));
  for (const char* wrong : {"", ".", "..", "a/b", "a b", "\xc3\xa4"}) {
    EXPECT_THAT(ProblemsWith({std::string("edge_paths=cluster://") + wrong}),
                HasSubstr("the name after cluster://"))
        << wrong;
  }
  EXPECT_THAT(ProblemsWith({"edge_paths=cluster://a,cluster://a"}), HasSubstr("there twice"));
}

TEST(ConfigTypesTest, WrongTypesAreRefused) {
  EXPECT_THAT(ProblemsWith({R"(relations=[{"name":"r","lhs":"user","rhs":"user","weight":"1"}])"}),
              HasSubstr("relations[0].weight: must be a number, is the string \"1\""));
  EXPECT_THAT(ProblemsWith({"lr=NaN", "margin=-inf", "lr=Infinity"}),
              AllOf(HasSubstr("lr: must be a number, is the string \"Infinity\""),
                    HasSubstr("margin: must be a number, is the string \"-inf\"")));
  EXPECT_THAT(ProblemsWith({"lr=NaN"}), HasSubstr("lr: must be a number, is the string \"NaN\""));
  EXPECT_THAT(ProblemsWith({"dimension=5.0"}), HasSubstr("must be an integer, is 5.0"));
  EXPECT_THAT(ProblemsWith({"dimension=1e2"}), HasSubstr("must be an integer, is 1e2"));
  EXPECT_THAT(ProblemsWith({"bias=yes"}),
              HasSubstr("must be true or false, is the string \"yes\""));
  EXPECT_THAT(ProblemsWith({"bias=1"}), HasSubstr("must be true or false, is 1"));
  EXPECT_THAT(ProblemsWith({"edge_paths=[1]"}), HasSubstr("edge_paths[0]: must be a string, is 1"));
  EXPECT_THAT(ProblemsWith({"entities=[]"}), HasSubstr("entities: must be an object, is a list"));
  EXPECT_THAT(ProblemsWith({"relations={}"}), HasSubstr("must be a list of objects"));
}

TEST(ConfigTypesTest, IntegersAreNumbers) {
  const auto result = ParseSmall({"lr=1", "margin=2"});

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.lr, 1.0);
  EXPECT_EQ(result->config.margin, 2.0);
}

TEST(ConfigTypesTest, NullInAListIsNotDropped) {
  EXPECT_THAT(ProblemsWith({R"(relations=[null, {"name": "r", "lhs": "user", "rhs": "user"}])"}),
              HasSubstr("relations[0]: must be an object, is null"));
}

TEST(ConfigNamesTest, UnknownNamesListTheValidOnes) {
  EXPECT_THAT(ProblemsWith({"comparator=cosine"}),
              AllOf(HasSubstr("dot, cos, l2, squared_l2"), HasSubstr("\"cosine\"")));
  EXPECT_THAT(ProblemsWith({"relations.0.operator=complex_diagnal"}),
              HasSubstr("did you mean \"complex_diagonal\"?"));
  EXPECT_THAT(ProblemsWith({"loss_fn=hinge"}), HasSubstr("ranking, logistic, softmax"));
  EXPECT_THAT(ProblemsWith({"regularizer=L2"}), HasSubstr("must be one of N3"));
  EXPECT_THAT(ProblemsWith({"bucket_order=INSIDE_OUT"}), HasSubstr("did you mean \"inside_out\"?"));
  EXPECT_THAT(ProblemsWith({"compute=fp16"}), HasSubstr("fp32, reference"));
}

TEST(ConfigNamesTest, RegisteredNamesAreValid) {
  ConfigOptions options;
  options.extra_operators = {"rotation"};
  options.extra_comparators = {"hyperbolic"};
  options.extra_losses = {"hinge"};

  const auto result = ParseSmall({"relations.0.operator=rotation", "comparator=hyperbolic",
                                  "loss_fn=hinge", "compute=reference"},
                                 options);

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.relations[0].operator_name, "rotation");
}

TEST(ConfigNamesTest, RegisteredNamesNeedTheReferenceImplementation) {
  ConfigOptions options;
  options.extra_operators = {"rotation"};
  options.extra_losses = {"hinge"};

  const auto result = ParseSmall({"relations.0.operator=rotation", "loss_fn=hinge"}, options);

  EXPECT_THAT(result,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("relations[0].operator: is rotation, which is not built in"),
                             HasSubstr("loss_fn: is hinge, which is not built in"))));
}

TEST(ConfigNamesTest, ARegisteredOperatorIsNoComparator) {
  ConfigOptions options;
  options.extra_operators = {"rotation"};

  EXPECT_THAT(ParseSmall({"comparator=rotation"}, options), Not(IsOk()));
}

TEST(ConfigEntitiesTest, NamesThatBreakFileNamesAreRefused) {
  for (const char* name : {"a/b", "a.b", "", "a\\nb"}) {
    const std::string entities =
        std::string(R"(entities={")") + name + R"(": {}, "user": {}, "item": {}})";
    EXPECT_THAT(ProblemsWith({entities}), HasSubstr("the name of an entity type must not "))
        << name;
  }
  EXPECT_THAT(ProblemsWith(
                  {"entities={\"" + std::string(201, 'x') + "\": {}, \"user\": {}, \"item\": {}}"}),
              HasSubstr("at most 200 bytes"));
}

TEST(ConfigEntitiesTest, NamesMayBeOfAnyLanguage) {
  const auto result = ParseRunConfig(R"({
    "entities": {"пользователь 1": {}},
    "relations": [{"name": "r", "lhs": "пользователь 1", "rhs": "пользователь 1"}],
    "dimension": 8, "entity_path": "e", "edge_paths": ["p"], "checkpoint_path": "c"})",
                                     "run.json");

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.entities[0].name, "пользователь 1");
}

TEST(ConfigEntitiesTest, FeaturizedTypesMayHavePartitions) {
  EXPECT_THAT(ParseSmall({"entities.user.featurized=true"}), IsOk());
  EXPECT_THAT(ParseSmall({"entities.user.featurized=true", "entities.user.num_partitions=4"}),
              IsOk());
}

// Nobody can list them.
TEST(ConfigEntitiesTest, FeaturizedTypesHaveNegativesOfTheBatchOnly) {
  const std::string featurized = "entities.item.featurized=true";
  EXPECT_THAT(ProblemsWith({featurized, "num_batch_negs=0"}),
              HasSubstr("num_batch_negs: is 0, but item on the rhs"));
  EXPECT_THAT(ParseSmall({featurized, "num_batch_negs=0", "disable_rhs_negs=true"}), IsOk());
  EXPECT_THAT(ProblemsWith({featurized, "relations.1.all_negs=true"}),
              HasSubstr("relations[1].all_negs: is true, but item on the rhs"));
  EXPECT_THAT(ParseSmall({featurized, "relations.1.all_negs=true", "disable_rhs_negs=true"}),
              IsOk());
  EXPECT_THAT(ProblemsWith({featurized, "eval_num_batch_negs=0"}),
              HasSubstr("eval_num_batch_negs: is 0, but item on the rhs"));
  EXPECT_THAT(ParseSmall({featurized, "eval_num_batch_negs=0", "eval_fraction=0"}), IsOk());
}

TEST(ConfigEntitiesTest, PartitionCountsOfASideMustAgree) {
  EXPECT_THAT(ProblemsWith({"entities.user.num_partitions=4", "entities.item.num_partitions=2"}),
              HasSubstr("entities.item.num_partitions: is 2, but entities.user has 4"));
}

TEST(ConfigEntitiesTest, UnpartitionedTypesAgreeWithAll) {
  EXPECT_THAT(ParseSmall({"entities.user.num_partitions=4"}), IsOk());
  EXPECT_THAT(ParseSmall({"entities.item.num_partitions=4"}), IsOk());
}

TEST(ConfigEntitiesTest, TheTwoSidesMayDifferInPartitions) {
  EXPECT_THAT(ParseSmall({R"(relations=[{"name": "r", "lhs": "user", "rhs": "item"}])",
                          "entities.user.num_partitions=4", "entities.item.num_partitions=2"}),
              IsOk());
}

TEST(ConfigEntitiesTest, ATypeThatNoRelationUsesIsAWarning) {
  const auto result = ParseSmall({R"(relations=[{"name": "r", "lhs": "user", "rhs": "user"}])"});

  ASSERT_THAT(result, IsOk());
  ASSERT_EQ(result->warnings.size(), 1u);
  EXPECT_THAT(result->warnings[0], StartsWith("entities.item: no relation uses"));
}

TEST(ConfigRelationsTest, UnknownEntityTypesAreRefused) {
  EXPECT_THAT(ProblemsWith({"relations.1.rhs=itme"}),
              HasSubstr("relations[1].rhs: unknown entity type \"itme\"; did you mean \"item\"?"));
}

TEST(ConfigRelationsTest, NamesMustDiffer) {
  EXPECT_THAT(ProblemsWith({"relations.1.name=follows"}),
              HasSubstr("relations[1].name: \"follows\" is also the name of relations[0]"));
}

TEST(ConfigRelationsTest, NameAndSidesAreNeeded) {
  EXPECT_THAT(
      ProblemsWith({"relations=[{}]"}),
      AllOf(HasSubstr("relations[0].name: is missing"), HasSubstr("relations[0].lhs: is missing"),
            HasSubstr("relations[0].rhs: is missing"), HasSubstr("3 problems")));
  EXPECT_THAT(ProblemsWith({"relations.0.name="}),
              HasSubstr("relations[0].name: must not be empty"));
}

TEST(ConfigRelationsTest, DynamicRelationsNeedExactlyOneEntry) {
  EXPECT_THAT(ProblemsWith({"dynamic_relations=true"}),
              HasSubstr("dynamic_relations: needs exactly one entry in relations"));
  EXPECT_THAT(ParseSmall({R"(relations=[{"name": "r", "lhs": "user", "rhs": "item"}])",
                          "dynamic_relations=true"}),
              IsOk());
}

TEST(ConfigRelationsTest, BothSidesNeedTheSameDimension) {
  EXPECT_THAT(ProblemsWith({"entities.item.dimension=6"}),
              HasSubstr("relations[1]: lhs user has dimension 8 and rhs item has dimension 6"));
}

TEST(ConfigRelationsTest, ComplexDiagonalNeedsAnEvenDimension) {
  EXPECT_THAT(ProblemsWith({"relations.0.operator=complex_diagonal", "dimension=7"}),
              HasSubstr("relations[0].operator: complex_diagonal needs an even dimension, is 7"));
  EXPECT_THAT(ParseSmall({"relations.0.operator=complex_diagonal", "bias=true"}), IsOk());
}

TEST(ConfigRelationsTest, ComplexDiagonalLooksAtTheDimensionOfTheEntityType) {
  EXPECT_THAT(ProblemsWith({"relations.0.operator=complex_diagonal", "entities.user.dimension=5",
                            "entities.item.dimension=5"}),
              HasSubstr("even dimension, is 5"));
  EXPECT_THAT(ParseSmall({"relations.0.operator=complex_diagonal", "dimension=7",
                          "entities.user.dimension=6", "entities.item.dimension=6"}),
              IsOk());
}

TEST(ConfigRelationsTest, BiasNeedsASecondCoordinate) {
  EXPECT_THAT(ProblemsWith({"dimension=1", "bias=true"}), HasSubstr("at least 2"));
}

TEST(ConfigRelationsTest, LinearAndAffineHaveNoRegularizer) {
  for (const std::string name : {"linear", "affine"}) {
    EXPECT_THAT(ProblemsWith({"relations.1.operator=" + name, "regularization_coef=0.001"}),
                HasSubstr("relations[1].operator: there is no regularizer for " + name));
    EXPECT_THAT(ParseSmall({"relations.1.operator=" + name}), IsOk());
  }
}

TEST(ConfigNegativesTest, ThereMustBeSome) {
  EXPECT_THAT(ProblemsWith({"num_batch_negs=0", "num_uniform_negs=0"}),
              HasSubstr("there are no negatives for relation \"follows\""));
  EXPECT_THAT(ProblemsWith({"num_batch_negs=0", "num_uniform_negs=0", "relations.0.all_negs=true"}),
              HasSubstr("there are no negatives for relation \"buys\""));
  EXPECT_THAT(ParseSmall({"num_batch_negs=0", "num_uniform_negs=0", "relations.0.all_negs=true",
                          "relations.1.all_negs=true"}),
              IsOk());
}

TEST(ConfigNegativesTest, OneSideMustHaveThem) {
  EXPECT_THAT(ParseSmall({"disable_lhs_negs=true"}), IsOk());
  EXPECT_THAT(ProblemsWith({"disable_lhs_negs=true", "disable_rhs_negs=true"}),
              HasSubstr("disable_rhs_negs: "));
}

TEST(ConfigNegativesTest, BatchesHoldWholeNegativeChunks) {
  EXPECT_THAT(
      ProblemsWith({"batch_size=1000", "num_batch_negs=70"}),
      HasSubstr("batch_size: must be a multiple of num_batch_negs (70), is 1000; the nearest "
                "are 980 and 1050"));
  EXPECT_THAT(ProblemsWith({"batch_size=10"}), HasSubstr("is 10; the nearest is 50"));
  EXPECT_THAT(ParseSmall({"batch_size=10", "num_batch_negs=0"}), IsOk());
}

TEST(ConfigEvaluationTest, HeldOutEdgesNeedCandidates) {
  EXPECT_THAT(ProblemsWith({"eval_num_batch_negs=0", "eval_num_uniform_negs=0"}),
              HasSubstr("eval_num_uniform_negs: is 0 like eval_num_batch_negs"));
  EXPECT_THAT(ParseSmall({"eval_num_batch_negs=0", "eval_num_uniform_negs=0", "eval_fraction=0"}),
              IsOk());
}

TEST(ConfigEvaluationTest, OneKindOfCandidatesIsEnough) {
  EXPECT_THAT(ParseSmall({"eval_num_batch_negs=0"}), IsOk());
  EXPECT_THAT(ParseSmall({"eval_num_uniform_negs=0"}), IsOk());
}

TEST(ConfigEvaluationTest, NullMeansAsInTraining) {
  EXPECT_THAT(ParseSmall({"eval_num_batch_negs=null", "eval_num_uniform_negs=null"}), IsOk());
  EXPECT_THAT(
      ProblemsWith({"num_batch_negs=0", "eval_num_batch_negs=null", "eval_num_uniform_negs=0"}),
      HasSubstr("eval_num_uniform_negs"));
}

TEST(ConfigEvaluationTest, StoppingByMrrNeedsHeldOutEdges) {
  EXPECT_THAT(
      ProblemsWith({R"(early_stopping={"metric": "mrr", "patience": 2})", "eval_fraction=0"}),
      HasSubstr("early_stopping.metric"));
}

TEST(ConfigParamSyncTest, AnExchangeComesBeforeTheTrainerCountsAsStale) {
  EXPECT_THAT(ProblemsWith({"param_sync.interval=5", "max_param_staleness=5"}),
              HasSubstr("max_param_staleness: must be 0 (never) or more than param_sync.interval "
                        "(5), is 5"));
  EXPECT_THAT(ParseSmall({"param_sync.interval=5", "max_param_staleness=5.1"}), IsOk());
  EXPECT_THAT(ParseSmall({"param_sync.interval=3600", "max_param_staleness=0"}), IsOk());
  EXPECT_THAT(ParseSmall({"param_sync.max_bytes_per_second=65536"}), IsOk());
}

TEST(ConfigProblemsTest, WhatFollowsFromAProblemIsNotTold) {
  EXPECT_EQ(ProblemsWith({"dimension=x", "relations.0.operator=complex_diagonal"}),
            "--set dimension=x: dimension: must be an integer, is the string \"x\"");
  EXPECT_THAT(ProblemsWith({"num_batch_negs=-70"}), Not(HasSubstr("batch_size")));
  EXPECT_THAT(ProblemsWith({R"(entities={"user": {}})"}),
              HasSubstr("unknown entity type \"item\""));
  EXPECT_THAT(ProblemsWith({"entities=7"}), Not(HasSubstr("unknown entity type")));
}

}  // namespace
}  // namespace weft
