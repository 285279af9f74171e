#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "graph/dataset_manifest.h"
#include "graph/entity_files.h"
#include "tests/graph/import_fixture.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

DatasetManifest Example() {
  DatasetManifest manifest;
  manifest.import_id = 0x0123456789abcdef;
  manifest.settings = {{"entities.node.num_partitions", "2"}, {"--format", "tsv"}};
  manifest.inputs = {{"train.tsv", 123, 0xffffffffffffffff, 10, 1, 7}};
  manifest.entities = {{"node", {3, 4}}, {"item", {0}}};
  manifest.num_relations = 2;
  manifest.relation_names_hash = 5;
  manifest.buckets = {{{0, 1}, 6}, {{1, 1}, 4}};
  manifest.files = {{"edges_0_1.h5", 2048, 9}};
  return manifest;
}

TEST(DatasetManifestTest, JsonRoundTrip) {
  const DatasetManifest manifest = Example();

  const absl::StatusOr<DatasetManifest> read = ParseManifest(ManifestToJson(manifest), "m.json");

  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, manifest);
}

TEST(DatasetManifestTest, AnInputNameMayHoldAnyBytes) {
  DatasetManifest manifest = Example();
  manifest.inputs[0].name = "caf\xE9.tsv";

  EXPECT_THAT(ParseManifest(ManifestToJson(manifest), "m.json"), IsOk());
}

TEST(DatasetManifestTest, DamageIsNamed) {
  const auto broken = [](const std::string& from, const std::string& to) {
    std::string json = ManifestToJson(Example());
    const size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    json.replace(at, from.size(), to);
    return ParseManifest(json, "m.json").status();
  };
  EXPECT_THAT(ParseManifest("", "m.json"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("m.json")));
  EXPECT_THAT(ParseManifest("[]", "m.json"), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(broken("\"inputs\"", "\"imputs\""),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("has no inputs")));
  EXPECT_THAT(broken("\"num_relations\": 2", "\"num_relations\": -2"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("num_relations is not a count")));
  EXPECT_THAT(broken("0123456789abcdef", "0123456789abcdeg"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("import_id")));
  EXPECT_THAT(broken("\"format_version\": 1", "\"format_version\": 2"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("format_version is 2")));
}

TEST(DatasetManifestTest, EveryTruncationIsAnError) {
  const std::string json = ManifestToJson(Example());

  for (size_t size = 0; size + 2 < json.size(); ++size) {
    ASSERT_FALSE(ParseManifest(json.substr(0, size), "m.json").ok()) << size;
  }
}

TEST(DatasetManifestTest, ImportIdDependsOnInputsAndSettingsOnly) {
  const DatasetManifest manifest = Example();
  const uint64_t id = ImportId(manifest.inputs, manifest.settings);

  auto inputs = manifest.inputs;
  inputs[0].name = "moved.tsv";
  inputs[0].edges = 0;
  EXPECT_EQ(ImportId(inputs, manifest.settings), id);
  inputs[0].hash = 1;
  EXPECT_NE(ImportId(inputs, manifest.settings), id);
  auto settings = manifest.settings;
  settings[1].second = "csv";
  EXPECT_NE(ImportId(manifest.inputs, settings), id);
}

TEST(DatasetManifestTest, ChangesAreDescribed) {
  EXPECT_THAT(
      DescribeChanges({{"a", "1"}, {"b", "2"}, {"c", "3"}}, {{"a", "1"}, {"b", "5"}, {"d", "4"}}),
      ElementsAre("b is now 5, was 2", "d is now 4, was not there", "c is gone, was 3"));
  EXPECT_THAT(DescribeChanges({{"a", "1"}}, {{"a", "1"}}), IsEmpty());
  EXPECT_THAT(DescribeChanges({{"a", "1"}, {"b", "2"}}, {{"b", "2"}, {"a", "1"}}),
              ElementsAre(HasSubstr("another order")));
}

TEST(DatasetSchemaTest, PartitionsOfASideAreTheMostOfItsTypes) {
  DatasetSchema schema;
  schema.entities = {{"user", 4}, {"item", 1}, {"tag", 2}};
  schema.relations = {{"buys", 0, 1}, {"has", 1, 2}};

  EXPECT_EQ(schema.NumPartitions(Side::kLhs), 4);
  EXPECT_EQ(schema.NumPartitions(Side::kRhs), 2);
}

class CheckDatasetTest : public testing::ImportFixture {
 protected:
  CheckDatasetTest() { AddInput("a\tr1\tb\n"); }

  absl::Status Check() const {
    return CheckDataset(options_.schema, options_.entity_path, options_.edge_paths);
  }
};

TEST_F(CheckDatasetTest, AcceptsWhatWasImported) {
  ASSERT_THAT(Run(), IsOk());

  EXPECT_THAT(Check(), IsOk());
  // Fewer edge paths are fine: evaluation uses one of them.
  EXPECT_THAT(CheckDataset(options_.schema, options_.entity_path, {}), IsOk());
}

TEST_F(CheckDatasetTest, AcceptsAFolderWithoutAManifest) {
  ASSERT_THAT(Run(), IsOk());
  std::filesystem::remove(options_.entity_path + "/" + DatasetManifest::kFileName);
  std::filesystem::remove(options_.edge_paths[0] + "/" + DatasetManifest::kFileName);

  EXPECT_THAT(Check(), IsOk());
}

TEST_F(CheckDatasetTest, RefusesAnotherConfiguration) {
  ASSERT_THAT(Run(), IsOk());
  options_.schema.relations.push_back({"r3", 0, 0});

  EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("relations[2] is now r3: node -> node")));
}

TEST_F(CheckDatasetTest, RefusesEdgesOfAnotherImport) {
  ASSERT_THAT(Run(), IsOk());
  ImportOptions other = options_;
  other.inputs = {Write("other.tsv", "x\tr1\ty\n")};
  other.entity_path = folder_.File("other");
  other.edge_paths = {folder_.File("other/edges")};
  ASSERT_THAT(Import(other), IsOk());

  EXPECT_THAT(CheckDataset(options_.schema, options_.entity_path, other.edge_paths),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another import")));
}

TEST_F(CheckDatasetTest, RefusesACountThatWasChanged) {
  ASSERT_THAT(Run(), IsOk());
  std::ofstream(EntityCountPath(options_.entity_path, "node", 0)) << "3\n";

  EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("says 3")));
}

TEST_F(CheckDatasetTest, RefusesMissingCountsAndEdgePaths) {
  EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_THAT(Run(), IsOk());
  options_.edge_paths.push_back(folder_.File("none"));

  EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

}  // namespace
}  // namespace weft
