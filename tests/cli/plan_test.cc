#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/cpu_count.h"
#include "tests/testing/run_program.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProgramResult;
using testing::RunWeft;

// A million entities of 400 bytes: 400 MB.
constexpr char kConfig[] = R"({
  "entities": {"user": {"num_partitions": 4}},
  "relations": [{"name": "follows", "lhs": "user", "rhs": "user"}],
  "dimension": 99, "threads": 1, "eval_fraction": 0, "global_emb": false,
  "entity_path": "data", "edge_paths": ["data/edges"], "checkpoint_path": "model"
})";

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() { std::ofstream(folder_.File("run.json")) << kConfig; }

  ProgramResult Plan(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"plan", "run.json", "--json", "plan.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunWeft(arguments, {.folder = folder_.path()});
  }
  // Of data that is not imported.
  ProgramResult PlanOfMillion(std::vector<std::string> more = {}) {
    for (const char* word : {"--entities", "user=1000000", "--edges", "8000000"}) {
      more.emplace_back(word);
    }
    return Plan(std::move(more));
  }
  nlohmann::json Json() {
    std::ifstream file(folder_.File("plan.json"));
    return nlohmann::json::parse(file);
  }

  testing::TempDir folder_;
};

TEST_F(PlanTest, SaysWhatOneMachineNeeds) {
  const ProgramResult result = PlanOfMillion();

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json plan = Json();
  EXPECT_EQ(plan["model_bytes"], 400'000'000);
  ASSERT_EQ(plan["roles"].size(), 1u);
  const nlohmann::json& role = plan["roles"][0];
  EXPECT_EQ(role["role"], "weft train");
  EXPECT_EQ(role["parts"]["the bucket's partitions"], 200'000'000);
  int64_t sum = 0;
  for (const auto& [what, bytes] : role["parts"].items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(role["memory_bytes"], sum);
  // Each partition is stored once at least.
  EXPECT_GE(plan["epoch"]["stored_bytes"].get<int64_t>(), 400'000'000);
  EXPECT_EQ(plan["epoch"]["busy_trainers"], 1.0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("4 x 4 partitions"), HasSubstr("8,000,000 edges"),
                                HasSubstr("weft train: ")));
}

TEST_F(PlanTest, SaysForHowManyThreadsItIs) {
  EXPECT_THAT(PlanOfMillion({"--set", "threads=3"}).out, Not(HasSubstr("threads as cores here")));
  const nlohmann::json three = Json()["roles"][0];
  EXPECT_EQ(three["threads"], 3);

  // Nothing said: of this machine, which the plan has to say.
  EXPECT_THAT(PlanOfMillion({"--set", "threads=null"}).out,
              HasSubstr(absl::StrCat("threads as cores here: ", AvailableCores())));
  EXPECT_EQ(Json()["roles"][0]["threads"], AvailableCores());

  PlanOfMillion({"--set", "threads=5"});
  EXPECT_GT(Json()["roles"][0]["memory_bytes"].get<int64_t>(),
            three["memory_bytes"].get<int64_t>());
}

TEST_F(PlanTest, SaysWhatEachRoleOfAClusterNeeds) {
  ASSERT_EQ(
      PlanOfMillion({"--trainers", "2", "--partition-servers", "4", "--store", "memory"}).exit_code,
      0);

  const nlohmann::json plan = Json();
  ASSERT_EQ(plan["roles"].size(), 4u);
  EXPECT_EQ(plan["roles"][0]["role"], "trainer");
  EXPECT_EQ(plan["roles"][0]["count"], 2);
  EXPECT_EQ(plan["roles"][1]["role"], "partition server");
  // Two versions of 400 MB and what two trainers store, over four servers.
  EXPECT_EQ(plan["roles"][1]["parts"]["versions of partitions"], (800'000'000 + 400'000'000) / 4);
  EXPECT_EQ(plan["roles"][2]["role"], "parameter server");
  EXPECT_EQ(plan["roles"][3]["role"], "lock server");
  const double busy = plan["epoch"]["busy_trainers"].get<double>();
  EXPECT_GT(busy, 1.0);
  EXPECT_LE(busy, 2.0);
}

TEST_F(PlanTest, ASpeedGivesTheTimeOfAnEpoch) {
  const ProgramResult result = PlanOfMillion({"--edges-per-second", "1000"});

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_DOUBLE_EQ(Json()["epoch"]["seconds"].get<double>(), 8'000.0);
  EXPECT_THAT(result.out, HasSubstr("takes 2:13:20 at 1 k edges/s"));
}

TEST_F(PlanTest, WhatDoesNotFitIsRefusedAndWhatFitsIsNamed) {
  const ProgramResult refused = PlanOfMillion({"--memory", "150M"});

  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("weft plan: weft train: training needs about"),
                                 HasSubstr("0.16 GB are available")));
  const std::string key = "entities.user.num_partitions = ";
  ASSERT_THAT(refused.err, HasSubstr(key));
  const int fits = std::stoi(refused.err.substr(refused.err.find(key) + key.size()));
  const auto with = [&](int partitions) {
    return PlanOfMillion({"--memory", "150M", "--set",
                          "entities.user.num_partitions=" + std::to_string(partitions)})
        .exit_code;
  };
  EXPECT_EQ(with(fits), 0);
  EXPECT_EQ(with(fits - 1), 1);
  const ProgramResult stores =
      PlanOfMillion({"--trainers", "1", "--memory", "450M", "--store", "memory"});
  EXPECT_EQ(stores.exit_code, 1);
  EXPECT_THAT(stores.err, AllOf(HasSubstr("partition server: each of 2 needs about"),
                                HasSubstr("with 3 of them it fits (--partition-servers)")));
}

TEST_F(PlanTest, CountsComeFromTheImport) {
  std::ofstream edges(folder_.File("edges.tsv"));
  for (int i = 0; i < 100; ++i) edges << "u" << i << "\tu" << (i * 7 + 1) % 100 << "\n";
  edges.close();
  EXPECT_THAT(Plan({}).err, AllOf(HasSubstr("entity_count_user_0.txt"), HasSubstr("--entities")));
  const ProgramResult imported =
      RunWeft({"import", "run.json", "edges.tsv", "--lhs-col", "0", "--rhs-col", "1"},
              {.folder = folder_.path()});
  ASSERT_EQ(imported.exit_code, 0) << imported.err;

  ASSERT_EQ(Plan({}).exit_code, 0);

  EXPECT_EQ(Json()["edges"], 100);
  EXPECT_EQ(Json()["model_bytes"], 40'000);
}

TEST_F(PlanTest, FeaturesOfFeaturizedTypesCount) {
  std::ofstream(folder_.File("run.json")) << R"({
    "entities": {"document": {"num_partitions": 1, "featurized": true},
                 "user": {"num_partitions": 2}},
    "relations": [{"name": "read_by", "lhs": "document", "rhs": "user"}],
    "dimension": 9, "threads": 1, "eval_fraction": 0, "global_emb": false,
    "entity_path": "data", "edge_paths": ["data/edges"], "checkpoint_path": "model"
  })";
  const auto features = [this](size_t role) {
    return Json()["roles"][role]["parts"]["features of the bucket's edges"].get<int64_t>();
  };
  // Two buckets of a million edges: a place (8 bytes) and 30 features (4) each, twice.
  std::vector<std::string> expected = {"--entities", "document=1000", "--entities",
                                       "user=10",    "--edges",       "2000000"};
  EXPECT_THAT(Plan(expected).err, HasSubstr("missing: --features-per-edge N"));
  for (const char* word : {"--features-per-edge", "30"}) expected.emplace_back(word);
  const ProgramResult result = Plan(expected);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(features(0), 2 * (8 + 4 * 30) * 1'000'000);
  // Partition servers that hold the edges: the lists as well, on both of them.
  const auto disk = [this] { return Json()["roles"][1]["disk_bytes"].get<int64_t>(); };
  for (const char* word : {"--trainers", "1", "--set", "edge_paths=cluster://edges"}) {
    expected.emplace_back(word);
  }
  ASSERT_EQ(Plan(expected).exit_code, 0);
  const int64_t with_features = disk();
  expected[7] = "0";
  ASSERT_EQ(Plan(expected).exit_code, 0);
  EXPECT_GT(with_features - disk(), 4 * 30 * 2'000'000 / 2);

  // What was imported is counted: five features in the larger of two buckets, of three edges.
  std::ofstream(folder_.File("edges.tsv")) << "a,b\tu\nc\tv\na,b,a\tu\n,\tu\n";
  const ProgramResult imported =
      RunWeft({"import", "run.json", "edges.tsv", "--lhs-col", "0", "--rhs-col", "1"},
              {.folder = folder_.path()});
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  ASSERT_EQ(Plan({}).exit_code, 0);
  const int64_t of_all = features(0);
  EXPECT_GE(of_all, 2 * (8 * 3 + 4 * 5));
  EXPECT_LE(of_all, 2 * (8 * 4 + 4 * 6));
}

TEST_F(PlanTest, WhatIsMissingOrUnknownIsNamed) {
  const ProgramResult missing = Plan({"--edges", "5"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("missing: --entities user=N"));
  const ProgramResult unknown = Plan({"--entities", "usr=5", "--edges", "5"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("no entity type usr"));
  const ProgramResult none = PlanOfMillion(
      {"--trainers", "1", "--param-servers", "0", "--set", "entities.user.num_partitions=1"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("no parameter server"));
}

}  // namespace
}  // namespace weft
