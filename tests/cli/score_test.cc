#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "services/trainer/model/model_parameters.h"
#include "tests/cli/small_checkpoint.h"
#include "tests/testing/run_program.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::MakeSmallCheckpoint;
using testing::ProgramResult;
using testing::RunWeft;
using testing::SmallCheckpoint;
using testing::TempDir;

constexpr char kStatic[] = R"({
    "entities": {"user": {"num_partitions": 2}, "item": {"num_partitions": 3}},
    "relations": [{"name": "sees", "lhs": "user", "rhs": "item", "operator": "none"},
                  {"name": "buys", "lhs": "user", "rhs": "item", "operator": "translation"}],
    "dimension": 4, "comparator": "dot", "global_emb": false})";
constexpr char kDynamic[] = R"({
    "entities": {"thing": {"num_partitions": 2}},
    "relations": [{"name": "all", "lhs": "thing", "rhs": "thing", "operator": "diagonal"}],
    "dynamic_relations": true, "dimension": 4, "comparator": "dot", "global_emb": false})";
// Without an operator: a score is the product of two vectors.
constexpr char kFeaturized[] = R"({
    "entities": {"document": {"num_partitions": 1, "featurized": true},
                 "reader": {"num_partitions": 2}},
    "relations": [{"name": "read_by", "lhs": "document", "rhs": "reader", "operator": "none"}],
    "dimension": 4, "comparator": "dot", "global_emb": false)";

using Vector = std::vector<double>;

Vector Of(std::span<const float> values) { return {values.begin(), values.end()}; }

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

class ScoreTest : public ::testing::Test {
 protected:
  json Score(const SmallCheckpoint& checkpoint, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"score", checkpoint.path, "--json",
                                          folder_.File("out.json")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = RunWeft(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(*ReadFile(folder_.File("out.json")));
  }

  const TempDir folder_;
};

TEST_F(ScoreTest, AnEdgeHasTheScoreOfTheModel) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), kStatic);
  const Parameter* t =
      checkpoint.parameters.Find(OperatorParameterName(1, Side::kRhs, "translation"));

  Vector rhs = Of(checkpoint.Row("item", "item 2.1"));
  for (size_t k = 0; k < rhs.size(); ++k) rhs[k] += t->values.data()[k];
  const double expected = Dot(Of(checkpoint.Row("user", "user 1.0")), rhs);
  EXPECT_NEAR(
      Score(checkpoint, {"--lhs", "user 1.0", "--rel", "buys", "--rhs", "item 2.1"})["score"],
      expected, 1e-5);
}

TEST_F(ScoreTest, DynamicRelationsHaveAScoreForEachQuestion) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), kDynamic);
  const Vector a = Of(checkpoint.Row("thing", "thing 0.2"));
  const Vector b = Of(checkpoint.Row("thing", "thing 1.3"));
  const auto with_operator = [&](Vector x, Side side) {
    const Parameter* d = checkpoint.parameters.Find(OperatorParameterName(0, side, "diagonals"));
    for (size_t k = 0; k < x.size(); ++k) x[k] *= d->values.row(2)[k];
    return x;
  };

  const json out =
      Score(checkpoint, {"--lhs", "thing 0.2", "--rel", "relation 2", "--rhs", "thing 1.3"});
  EXPECT_NEAR(out["score_as_rhs"], Dot(with_operator(a, Side::kLhs), b), 1e-5);
  EXPECT_NEAR(out["score_as_lhs"], Dot(a, with_operator(b, Side::kRhs)), 1e-5);
}

// Completing either side ranks all entities of that side's type by the scores of the edges.
TEST_F(ScoreTest, TheBestCompletionsAreThoseOfTheHighestScores) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), kStatic);
  const auto edge_score = [&](const std::string& lhs, const std::string& rhs) {
    return Score(checkpoint, {"--lhs", lhs, "--rel", "buys", "--rhs", rhs})["score"].get<double>();
  };
  const auto check = [&](const json& out, const auto& names, const auto& score) {
    std::vector<std::pair<double, std::string>> expected;
    for (const auto& partition : names) {
      for (const std::string& name : partition) expected.emplace_back(-score(name), name);
    }
    std::ranges::sort(expected);
    ASSERT_EQ(out["completions"].size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(out["completions"][i]["entity"], expected[i].second);
      EXPECT_EQ(out["completions"][i]["score"].get<double>(), -expected[i].first);
    }
  };

  check(Score(checkpoint, {"--lhs", "user 0.1", "--rel", "buys", "-k", "12"}), checkpoint.names[1],
        [&](const std::string& item) { return edge_score("user 0.1", item); });
  check(Score(checkpoint, {"--rhs", "item 1.1", "--rel", "buys", "-k", "7"}), checkpoint.names[0],
        [&](const std::string& user) { return edge_score(user, "item 1.1"); });
}

TEST_F(ScoreTest, DynamicCompletionsAreAnswersToTheirQuestion) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), kDynamic);

  const json best =
      Score(checkpoint, {"--rhs", "thing 0.0", "--rel", "relation 1", "-k", "1"})["completions"][0];
  const json edge = Score(checkpoint, {"--lhs", best["entity"].get<std::string>(), "--rel",
                                       "relation 1", "--rhs", "thing 0.0"});
  EXPECT_EQ(best["score"], edge["score_as_lhs"]);
}

// As weft import takes such an entity: twice counts twice, empty parts are passed over.
TEST_F(ScoreTest, AnEntityOfAFeaturizedTypeIsTheMeanOfItsFeatures) {
  const SmallCheckpoint checkpoint =
      MakeSmallCheckpoint(folder_.path(), std::string(kFeaturized) + "}");
  const Vector a = Of(checkpoint.Row("document", "document 0.0"));
  const Vector c = Of(checkpoint.Row("document", "document 0.2"));
  const Vector reader = Of(checkpoint.Row("reader", "reader 1.2"));
  const auto score = [&](const std::string& document, const std::string& delimiter) {
    return Score(checkpoint, {"--lhs", document, "--rel", "read_by", "--rhs", "reader 1.2",
                              "--feature-delimiter", delimiter})["score"]
        .get<double>();
  };

  EXPECT_NEAR(score("document 0.2", ","), Dot(c, reader), 1e-5);
  const double mean = (2 * Dot(a, reader) + Dot(c, reader)) / 3;
  EXPECT_NEAR(score("document 0.0,document 0.2,,document 0.0", "comma"), mean, 1e-5);
  EXPECT_NEAR(score("document 0.0|document 0.2|document 0.0", "pipe"), mean, 1e-5);
  EXPECT_EQ(score(",", ","), 0);

  const json best = Score(checkpoint, {"--lhs", "document 0.0,document 0.2", "--rel", "read_by",
                                       "-k", "1"})["completions"][0];
  const json edge = Score(checkpoint, {"--lhs", "document 0.0,document 0.2", "--rel", "read_by",
                                       "--rhs", best["entity"].get<std::string>()});
  EXPECT_EQ(best["score"], edge["score"]);
}

TEST_F(ScoreTest, FeaturesMayBeOfAnyPartition) {
  std::string config(kFeaturized);
  config.replace(config.find("\"num_partitions\": 1"), 19, "\"num_partitions\": 2");
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), config + "}");
  const Vector reader = Of(checkpoint.Row("reader", "reader 1.2"));

  EXPECT_NEAR(Score(checkpoint, {"--lhs", "document 0.1,document 1.3", "--rel", "read_by", "--rhs",
                                 "reader 1.2"})["score"],
              (Dot(Of(checkpoint.Row("document", "document 0.1")), reader) +
               Dot(Of(checkpoint.Row("document", "document 1.3")), reader)) /
                  2,
              1e-5);
}

TEST_F(ScoreTest, MaxNormLimitsFeaturesNotTheirMean) {
  const SmallCheckpoint checkpoint =
      MakeSmallCheckpoint(folder_.path(), std::string(kFeaturized) + R"(, "max_norm": 0.25})");
  const auto limited = [&](const std::string& type, const std::string& name) {
    Vector x = Of(checkpoint.Row(type, name));
    const double norm = std::sqrt(Dot(x, x));
    for (double& value : x) value *= std::min(1.0, 0.25 / norm);
    return x;
  };
  const Vector reader = limited("reader", "reader 0.1");

  EXPECT_NEAR(Score(checkpoint, {"--lhs", "document 0.1,document 0.2", "--rel", "read_by", "--rhs",
                                 "reader 0.1"})["score"],
              (Dot(limited("document", "document 0.1"), reader) +
               Dot(limited("document", "document 0.2"), reader)) /
                  2,
              1e-5);
}

TEST_F(ScoreTest, AFeaturizedSideThatIsAskedForIsAnsweredWithFeatures) {
  const SmallCheckpoint checkpoint =
      MakeSmallCheckpoint(folder_.path(), std::string(kFeaturized) + "}");

  const ProgramResult best =
      RunWeft({"score", checkpoint.path, "--rhs", "reader 0.0", "--rel", "read_by"});
  EXPECT_EQ(best.exit_code, 0) << best.err;
  EXPECT_THAT(best.out, HasSubstr("best of 3 features, each as an entity that has no other"));
  const ProgramResult unknown =
      RunWeft({"score", checkpoint.path, "--lhs", "document 0.0,document 0.9", "--rel", "read_by"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("there is no feature \"document 0.9\" of document; the "
                                     "closest are: document 0.0"));
  const ProgramResult delimiter = RunWeft({"score", checkpoint.path, "--lhs", "document 0.0",
                                           "--rel", "read_by", "--feature-delimiter", "ab"});
  EXPECT_EQ(delimiter.exit_code, 2);
  EXPECT_THAT(delimiter.err, HasSubstr("must be one character or a name"));
}

TEST_F(ScoreTest, WhatIsUnknownIsToldWithTheClosest) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), kStatic);

  const ProgramResult relation =
      RunWeft({"score", checkpoint.path, "--lhs", "user 0.0", "--rel", "buy"});
  EXPECT_EQ(relation.exit_code, 1);
  EXPECT_THAT(relation.err, HasSubstr("there is no relation \"buy\"; did you mean \"buys\"?"));
  const ProgramResult entity =
      RunWeft({"score", checkpoint.path, "--lhs", "item 0.0", "--rel", "buys"});
  EXPECT_EQ(entity.exit_code, 1);
  EXPECT_THAT(entity.err, HasSubstr("there is no user \"item 0.0\"; the closest are: user 0.0"));
  const ProgramResult nothing = RunWeft({"score", checkpoint.path, "--rel", "buys"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("give --lhs, --rhs or both"));
}

}  // namespace
}  // namespace weft
