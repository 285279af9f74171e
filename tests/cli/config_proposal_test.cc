#include "cli/config_proposal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "services/common/run_config.h"
#include "tests/testing/status_matchers.h"

namespace weft::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

ProposalOptions Options() {
  ProposalOptions options;
  options.folder = "data";
  options.num_edges = 1000;
  options.whole = true;
  return options;
}

DataSketch Triples() {
  DataSketch sketch;
  sketch.num_columns = 3;
  sketch.rel_column = 1;
  sketch.rhs_column = 2;
  sketch.num_edges = 1000;
  sketch.num_lhs_names = sketch.num_rhs_names = 90;
  sketch.num_names = 100;
  sketch.num_relations = 2;
  sketch.relations = {"likes", "knows"};
  return sketch;
}

// The proposed configuration, read back.
RunConfig Propose(const DataSketch& sketch, const ProposalOptions& options) {
  const auto proposal = ProposeConfig(sketch, options);
  EXPECT_THAT(proposal, IsOk());
  if (!proposal.ok()) return {};
  const auto parsed = ParseRunConfig(proposal->json, "proposal");
  EXPECT_THAT(parsed, IsOk());
  return parsed.ok() ? parsed->config : RunConfig();
}

TEST(ConfigProposalTest, SeveralRelationsAreDynamic) {
  const RunConfig config = Propose(Triples(), Options());

  EXPECT_TRUE(config.dynamic_relations);
  ASSERT_EQ(config.relations.size(), 1u);
  EXPECT_EQ(config.relations[0].operator_name, "complex_diagonal");
  EXPECT_EQ(config.entity_path, "data/entities");
  EXPECT_FALSE(config.global_emb);
}

TEST(ConfigProposalTest, OneRelationIsStaticUnderItsName) {
  DataSketch sketch = Triples();
  sketch.num_relations = 1;
  sketch.relations = {"likes"};

  const RunConfig config = Propose(sketch, Options());

  EXPECT_FALSE(config.dynamic_relations);
  EXPECT_EQ(config.relations[0].name, "likes");
}

TEST(ConfigProposalTest, OneRelationInTheBeginningOfTheDataMayNotBeTheOnlyOne) {
  DataSketch sketch = Triples();
  sketch.num_relations = 1;
  sketch.relations = {"likes"};
  ProposalOptions options = Options();
  options.whole = false;

  EXPECT_TRUE(Propose(sketch, options).dynamic_relations);
}

TEST(ConfigProposalTest, BipartiteDataHasTwoTypesNamedByTheHeader) {
  DataSketch sketch;
  sketch.num_columns = 2;
  sketch.num_edges = 100;
  sketch.num_lhs_names = 30;
  sketch.num_rhs_names = 40;
  sketch.num_names = 70;
  sketch.has_header = true;
  sketch.header = {"User", "no type"};

  const RunConfig config = Propose(sketch, Options());

  ASSERT_EQ(config.entities.size(), 2u);
  EXPECT_EQ(config.entities[0].name, "user");
  EXPECT_EQ(config.entities[1].name, "right");
  EXPECT_EQ(config.relations[0].lhs, 0);
  EXPECT_EQ(config.relations[0].rhs, 1);
}

TEST(ConfigProposalTest, FewNamesOnBothSidesShowNothing) {
  DataSketch sketch;
  sketch.num_columns = 2;
  sketch.num_edges = 100;
  sketch.num_lhs_names = sketch.num_rhs_names = 3;
  sketch.num_names = 6;

  EXPECT_EQ(Propose(sketch, Options()).entities.size(), 1u);
}

TEST(ConfigProposalTest, EntityTypesCanBeGiven) {
  ProposalOptions options = Options();
  options.entities = {{"user", 4}, {"item", 1}};

  const RunConfig config = Propose(Triples(), options);

  ASSERT_EQ(config.entities.size(), 2u);
  EXPECT_EQ(config.entities[0].num_partitions, 4);
  EXPECT_EQ(config.relations[0].rhs, 1);
}

TEST(ConfigProposalTest, WrongEntityTypesAreRefused) {
  ProposalOptions options = Options();
  options.entities = {{"a/b", 1}};
  EXPECT_THAT(ProposeConfig(Triples(), options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("must not contain '/'")));
  options.entities = {{"a", 0}};
  EXPECT_THAT(ProposeConfig(Triples(), options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_partitions")));
  options.entities = {{"a", 1}, {"b", 1}, {"c", 1}};
  EXPECT_THAT(ProposeConfig(Triples(), options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3 entity types")));
}

TEST(ConfigProposalTest, WithoutEdgesThereIsNone) {
  DataSketch sketch = Triples();
  sketch.num_edges = sketch.num_relations = 0;
  sketch.relations.clear();

  EXPECT_THAT(ProposeConfig(sketch, Options()),
              StatusIs(absl::StatusCode::kInvalidArgument, "the data has no edges"));
}

TEST(ConfigProposalTest, LargeTablesAreCutIntoPartitions) {
  DataSketch sketch = Triples();
  sketch.num_names = 10'000'000;  // x 804 bytes
  ProposalOptions options = Options();
  options.memory_bytes = int64_t{8} << 30;

  EXPECT_EQ(Propose(sketch, options).entities[0].num_partitions, 8);
  options.memory_bytes = int64_t{64} << 30;
  EXPECT_EQ(Propose(sketch, options).entities[0].num_partitions, 1);
}

TEST(ConfigProposalTest, MoreEdgesNeedFewerEpochs) {
  ProposalOptions options = Options();
  EXPECT_EQ(Propose(Triples(), options).num_epochs, 30);
  options.num_edges = 5'000'000;
  EXPECT_EQ(Propose(Triples(), options).num_epochs, 10);
}

TEST(ConfigProposalTest, SaysWhy) {
  const auto proposal = ProposeConfig(Triples(), Options());

  ASSERT_THAT(proposal, IsOk());
  EXPECT_THAT(proposal->reasons, Contains(HasSubstr("2 relations (likes, knows)")));
  EXPECT_THAT(proposal->reasons, Contains(HasSubstr("eval_fraction 0")));
}

TEST(ImportArgumentsTest, NameTheColumnsAndTheFormat) {
  DataSketch sketch = Triples();
  EXPECT_EQ(ImportArguments(sketch), "--lhs-col 0 --rel-col 1 --rhs-col 2");
  sketch.delimiter = '|';
  sketch.weight_column = 3;
  sketch.has_header = true;
  EXPECT_EQ(ImportArguments(sketch),
            "--lhs-col 0 --rel-col 1 --rhs-col 2 --weight-col 3 --delimiter '|' --skip-header");
  sketch.delimiter = ',';
  sketch.quoted = true;
  EXPECT_THAT(ImportArguments(sketch), HasSubstr("--format csv --skip-header"));
  sketch.delimiter = ';';
  EXPECT_THAT(ImportArguments(sketch), HasSubstr("--format csv --delimiter ';' --skip-header"));
}

}  // namespace
}  // namespace weft::cli
