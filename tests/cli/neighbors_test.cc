#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "services/common/file_util.h"
#include "services/trainer/model/model_parameters.h"
#include "tests/cli/small_checkpoint.h"
#include "tests/testing/run_program.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::MakeSmallCheckpoint;
using testing::ProgramResult;
using testing::RunWeft;
using testing::SmallCheckpoint;
using testing::TempDir;

std::string Config(const std::string& more = "") {
  return absl::StrCat(
      R"({"entities": {"user": {"num_partitions": 3}, "item": {"num_partitions": 1}},
      "relations": [{"name": "buys", "lhs": "user", "rhs": "item", "operator": "diagonal"}],
      "dimension": 4)",
      more, "}");
}

using Ranked = std::vector<std::pair<std::string, double>>;

// The answer, by the obvious way: every other user, by `score` of two vectors.
template <typename Score>
Ranked Expected(const SmallCheckpoint& checkpoint, const std::string& entity, Score score) {
  const Parameter* global = checkpoint.parameters.Find(GlobalEmbeddingName("user"));
  const auto vector = [&](const std::string& name) {
    std::vector<double> v;
    for (const float x : checkpoint.Row("user", name)) v.push_back(x);
    for (size_t k = 0; global != nullptr && k < v.size(); ++k) v[k] += global->values.data()[k];
    return v;
  };
  Ranked ranked;
  for (const auto& partition : checkpoint.names[0]) {
    for (const std::string& name : partition) {
      if (name != entity) ranked.emplace_back(name, score(vector(entity), vector(name)));
    }
  }
  std::ranges::sort(ranked, [](const auto& a, const auto& b) { return a.second > b.second; });
  return ranked;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b, size_t first = 0) {
  double sum = 0;
  for (size_t k = first; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

class NeighborsTest : public ::testing::Test {
 protected:
  Ranked Neighbors(const SmallCheckpoint& checkpoint, std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "neighbors", checkpoint.path, "--json", folder_.File("out.json"), "-k", "5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = RunWeft(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Ranked ranked;
    const json out = json::parse(*ReadFile(folder_.File("out.json")));
    for (const json& neighbor : out["neighbors"]) {
      ranked.emplace_back(neighbor["entity"], neighbor["score"]);
      EXPECT_THAT(result.out, HasSubstr(neighbor["entity"].get<std::string>()));
    }
    return ranked;
  }
  void ExpectSame(const Ranked& actual, const Ranked& expected) {
    ASSERT_EQ(actual.size(), 5);
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_EQ(actual[i].first, expected[i].first) << i;
      EXPECT_NEAR(actual[i].second, expected[i].second, 1e-5) << i;
    }
  }

  const TempDir folder_;
};

TEST_F(NeighborsTest, TheNearestByCosineOfAllPartitionsAreListed) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), Config());

  ExpectSame(Neighbors(checkpoint, {"--entity", "user 1.2"}),
             Expected(checkpoint, "user 1.2", [](const auto& a, const auto& b) {
               return Dot(a, b) / std::sqrt(Dot(a, a) * Dot(b, b));
             }));
}

TEST_F(NeighborsTest, TheCosineLeavesTheBiasOut) {
  const SmallCheckpoint checkpoint =
      MakeSmallCheckpoint(folder_.path(), Config(R"(, "bias": true, "comparator": "dot")"));

  ExpectSame(Neighbors(checkpoint, {"--entity", "user 0.1"}),
             Expected(checkpoint, "user 0.1", [](const auto& a, const auto& b) {
               return Dot(a, b, 1) / std::sqrt(Dot(a, a, 1) * Dot(b, b, 1));
             }));
}

TEST_F(NeighborsTest, TrainedIsTheModelsComparator) {
  const SmallCheckpoint checkpoint =
      MakeSmallCheckpoint(folder_.path(), Config(R"(, "comparator": "squared_l2")"));

  ExpectSame(Neighbors(checkpoint, {"--entity", "user 2.4", "--metric", "trained"}),
             Expected(checkpoint, "user 2.4", [](const auto& a, const auto& b) {
               return 2 * Dot(a, b) - Dot(a, a) - Dot(b, b);
             }));
}

TEST_F(NeighborsTest, AnUnknownNameListsTheClosestOnes) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), Config());

  const ProgramResult result = RunWeft({"neighbors", checkpoint.path, "--entity", "usr 1.2"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("there is no entity \"usr 1.2\"; the closest are: user 1.2"));
  const ProgramResult prefix = RunWeft({"neighbors", checkpoint.path, "--entity", "ITEM 0"});
  EXPECT_THAT(prefix.err, HasSubstr("the closest are: item 0.0, item 0.1, item 0.2"));
}

TEST_F(NeighborsTest, ANameOfSeveralTypesNeedsTheType) {
  SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), Config());
  const std::string names = checkpoint.entity_path + "/entity_names_item_0.json";
  ASSERT_THAT(WriteFileAtomically(names, R"(["user 0.0", "b", "c"])"), IsOk());

  const ProgramResult result = RunWeft({"neighbors", checkpoint.path, "--entity", "user 0.0"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("several types (user, item)"), HasSubstr("--type")));
  EXPECT_EQ(
      RunWeft({"neighbors", checkpoint.path, "--entity", "user 0.0", "--type", "item"}).exit_code,
      0);
  EXPECT_THAT(RunWeft({"neighbors", checkpoint.path, "--entity", "b", "--type", "itm"}).err,
              HasSubstr("did you mean \"item\"?"));
}

TEST_F(NeighborsTest, MoreThanThereAreIsAllThereAre) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), Config());

  const ProgramResult result =
      RunWeft({"neighbors", checkpoint.path, "--entity", "item 0.0", "-k", "100"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 3);  // the title and the two others
  EXPECT_EQ(RunWeft({"neighbors", checkpoint.path, "--entity", "item 0.0", "-k", "0"}).exit_code,
            2);
}

TEST_F(NeighborsTest, AVectorOfZerosHasCosineZero) {
  SmallCheckpoint checkpoint =
      MakeSmallCheckpoint(folder_.path(), Config(R"(, "global_emb": false)"));
  std::ranges::fill(checkpoint.tables[1][0].embeddings.span(), 0.0f);
  ASSERT_THAT(checkpoint.Rewrite(), IsOk());

  const ProgramResult result = RunWeft({"neighbors", checkpoint.path, "--entity", "item 0.0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0.0000"));
}

TEST_F(NeighborsTest, VectorsOfDenormalNumbersHaveADirectionToo) {
  SmallCheckpoint checkpoint =
      MakeSmallCheckpoint(folder_.path(), Config(R"(, "global_emb": false)"));
  const Ranked before = Neighbors(checkpoint, {"--entity", "user 0.0"});
  for (EmbeddingPartition& table : checkpoint.tables[0]) {
    for (float& x : table.embeddings.span()) x *= 1e-40f;
  }
  ASSERT_THAT(checkpoint.Rewrite(), IsOk());

  const Ranked after = Neighbors(checkpoint, {"--entity", "user 0.0"});

  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].first, before[i].first);
    EXPECT_NEAR(after[i].second, before[i].second, 1e-3);
  }
}

TEST_F(NeighborsTest, ACheckpointThatDivergedIsRefused) {
  SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), Config());
  for (float& x : checkpoint.tables[0][2].embeddings.span()) x = NAN;
  ASSERT_THAT(checkpoint.Rewrite(), IsOk());

  const ProgramResult result = RunWeft({"neighbors", checkpoint.path, "--entity", "user 0.0"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("embeddings_user_2.v1.h5: row 0 holds"),
                                HasSubstr("not a finite number")));
}

TEST_F(NeighborsTest, AnEmptyVersionFileFallsBackToTheNewestWholeVersion) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), Config());
  ASSERT_THAT(WriteFileAtomically(checkpoint.path + "/checkpoint_version.txt", ""), IsOk());

  const ProgramResult result = RunWeft({"neighbors", checkpoint.path, "--entity", "user 0.0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning"));
}

TEST_F(NeighborsTest, APreservedEpochIsACheckpointToo) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), Config());
  CheckpointDir dir(checkpoint.path, {{"user", 3}, {"item", 1}});
  ASSERT_THAT(dir.Preserve(1, 5, RunConfigToJson(checkpoint.config, /*pbg_keys_only=*/true)),
              IsOk());

  const ProgramResult result =
      RunWeft({"neighbors", checkpoint.path + "/epoch_5", "--entity", "user 0.0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

// The configuration has paths relative to where the run was; the command may run anywhere.
TEST_F(NeighborsTest, NamesAreFoundFromAnyFolder) {
  const std::string golden =
      absl::StrCat(std::getenv("WEFT_SOURCE_DIR"), "/tests/golden/pbg_static");
  const ProgramResult result =
      RunWeft({"neighbors", golden + "/checkpoint", "--entity", "user 0.1", "-k", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;

  fs::create_directory(folder_.File("elsewhere"));
  fs::copy(golden + "/checkpoint", folder_.File("elsewhere/renamed"));
  const ProgramResult lost =
      RunWeft({"neighbors", folder_.File("elsewhere/renamed"), "--entity", "user 0.1"});
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_THAT(lost.err, HasSubstr("--entities"));
  EXPECT_EQ(RunWeft({"neighbors", folder_.File("elsewhere/renamed"), "--entity", "user 0.1",
                     "--entities", golden + "/entities"})
                .exit_code,
            0);
}

}  // namespace
}  // namespace weft
