// Imports of featurized entity types.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/graph/import_fixture.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::NamedEdge;
using testing::StatusIs;

// Documents, which are made of words, and who reads them.
class FeaturesImportTest : public testing::ImportFixture {
 protected:
  FeaturesImportTest() {
    options_.schema.entities = {{"document", 1, /*featurized=*/true}, {"reader", 1}};
    options_.schema.relations = {{"read_by", 0, 1}, {"reads", 1, 0}, {"cites", 0, 0}};
  }
};

TEST_F(FeaturesImportTest, FeaturesStandInOrderOfFirstAppearance) {
  AddInput("dog,cat\tread_by\tann\nbob\treads\tcat,bird\ndog\tcites\tfish,dog\n");
  AddInput("bird\tread_by\tann\n");

  const absl::StatusOr<ImportReport> report = Run();

  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(Names("document", 0), ElementsAre("dog", "cat", "bird", "fish"));
  EXPECT_THAT(Names("reader", 0), ElementsAre("ann", "bob"));
  EXPECT_THAT(Edges(0), ElementsAre(NamedEdge("{dog+cat}", "read_by", "ann"),
                                    NamedEdge("bob", "reads", "{cat+bird}"),
                                    NamedEdge("{dog}", "cites", "{fish+dog}")));
  EXPECT_THAT(Edges(1), ElementsAre(NamedEdge("{bird}", "read_by", "ann")));
  EXPECT_EQ(report->num_entities(), 6);
  EXPECT_EQ(report->inputs[0].new_entities, 6);
  EXPECT_EQ(report->inputs[1].new_entities, 0);
}

TEST_F(FeaturesImportTest, RepeatedFeaturesStayAndEmptyOnesArePassedOver) {
  AddInput("dog,,dog,\tread_by\tann\n,\tread_by\tann\n");

  ASSERT_THAT(Run(), IsOk());

  EXPECT_THAT(Names("document", 0), ElementsAre("dog"));
  EXPECT_THAT(Edges(0), ElementsAre(NamedEdge("{dog+dog}", "read_by", "ann"),
                                    NamedEdge("{}", "read_by", "ann")));
}

TEST_F(FeaturesImportTest, TheDelimiterIsAnOption) {
  options_.feature_delimiter = ' ';
  AddInput("dog, cat\tread_by\tann\n");

  ASSERT_THAT(Run(), IsOk());

  EXPECT_THAT(Names("document", 0), ElementsAre("dog,", "cat"));
  options_.feature_delimiter = '\t';
  EXPECT_THAT(CheckImportOptions(options_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--feature-delimiter")));
}

TEST_F(FeaturesImportTest, TheOtherSideMayBePartitioned) {
  options_.schema.entities[1].num_partitions = 3;
  options_.schema.relations = {{"read_by", 0, 1}};
  std::string text;
  for (int i = 0; i < 30; ++i) {
    text += "w" + std::to_string(i % 7) + ",w" + std::to_string(i % 3) + "\tread_by\tr" +
            std::to_string(i) + "\n";
  }
  AddInput(text);

  ASSERT_THAT(Run(), IsOk());

  size_t edges = 0;
  for (PartitionId rhs = 0; rhs < 3; ++rhs) {
    for (const auto& [lhs, relation, reader] : Edges(0, {0, rhs})) {
      const int i = std::stoi(reader.substr(1));
      EXPECT_EQ(lhs, "{w" + std::to_string(i % 7) + "+w" + std::to_string(i % 3) + "}");
      ++edges;
    }
  }
  EXPECT_EQ(edges, 30u);
}

TEST_F(FeaturesImportTest, RareFeaturesLeaveTheirEntities) {
  options_.rare.entity_min_count = 2;
  // dog: 3 times, cat: 2, fish and bird: once; ann: 4 times.
  AddInput(
      "dog,fish\tread_by\tann\ncat,dog\tread_by\tann\nbird\tread_by\tann\ndog,cat\tread_by\tann\n");

  const absl::StatusOr<ImportReport> report = Run();

  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(Names("document", 0), ElementsAre("dog", "cat"));
  EXPECT_THAT(Edges(0), ElementsAre(NamedEdge("{dog}", "read_by", "ann"),
                                    NamedEdge("{cat+dog}", "read_by", "ann"),
                                    NamedEdge("{dog+cat}", "read_by", "ann")));
  EXPECT_EQ(report->dropped_entities, 2);
  EXPECT_EQ(report->inputs[0].rare, 1);
}

TEST_F(FeaturesImportTest, DuplicatesAreEdgesOfTheSameFields) {
  options_.drop_duplicates = true;
  AddInput("dog,cat\tread_by\tann\ndog,cat\tread_by\tann\ncat\tread_by\tann\n");

  const absl::StatusOr<ImportReport> report = Run();

  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->inputs[0].duplicates, 1);
  EXPECT_THAT(Edges(0), ElementsAre(NamedEdge("{dog+cat}", "read_by", "ann"),
                                    NamedEdge("{cat}", "read_by", "ann")));
}

TEST_F(FeaturesImportTest, ThreadsMakeNoDifference) {
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text += "w" + std::to_string(i % 997) + ",w" + std::to_string(i * 31 % 499) + "\tread_by\tr" +
            std::to_string(i % 77) + "\n";
  }
  AddInput(text);
  options_.threads = 1;
  ASSERT_THAT(Run(), IsOk());
  const auto once = DataTree();
  options_.threads = 4;
  options_.force = true;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_EQ(DataTree(), once);
}

// Two partitions of documents, whose words are of two languages.
class PartitionedFeaturesImportTest : public FeaturesImportTest {
 protected:
  PartitionedFeaturesImportTest() { options_.schema.entities[0].num_partitions = 2; }
};

TEST_F(PartitionedFeaturesImportTest, FeaturesOfAnEntityLieInThePartitionOfItsBucket) {
  AddInput(
      "dog,cat\tread_by\tann\n"
      "hund\tread_by\tann\n"
      "bird,cat\tcites\tkatze,hund\n"
      "ann\treads\tkatze\n"
      ",\tread_by\tann\n");
  AddInput("cat\tcites\tdog\n");

  const absl::StatusOr<ImportReport> report = Run();

  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(Names("document", 0), ElementsAre("dog", "cat", "bird"));
  EXPECT_THAT(Names("document", 1), ElementsAre("hund", "katze"));
  EXPECT_THAT(report->warnings, IsEmpty());
  EXPECT_EQ(report->num_lhs_partitions, 2);
  EXPECT_EQ(report->num_rhs_partitions, 2);
  // Readers have one partition, and so does who has no features.
  EXPECT_THAT(Edges(0, {0, 0}), ElementsAre(NamedEdge("{dog+cat}", "read_by", "ann"),
                                            NamedEdge("{}", "read_by", "ann")));
  EXPECT_THAT(Edges(0, {0, 1}), ElementsAre(NamedEdge("{bird+cat}", "cites", "{katze+hund}"),
                                            NamedEdge("ann", "reads", "{katze}")));
  EXPECT_THAT(Edges(0, {1, 0}), ElementsAre(NamedEdge("{hund}", "read_by", "ann")));
  EXPECT_THAT(Edges(0, {1, 1}), IsEmpty());
  EXPECT_THAT(Edges(1, {0, 0}), ElementsAre(NamedEdge("{cat}", "cites", "{dog}")));
  EXPECT_THAT(CheckDataset(options_.schema, options_.entity_path, options_.edge_paths), IsOk());
}

TEST_F(PartitionedFeaturesImportTest, EdgesMayComeInAnyOrder) {
  std::vector<std::string> lines;
  for (int i = 0; i < 300; ++i) {
    // Groups of different sizes: words i % 7 of group i % 20.
    const int group = i % 20;
    const auto word = [&](int k) {
      return "g" + std::to_string(group) + "w" + std::to_string(k % (1 + group / 3));
    };
    lines.push_back(word(i / 20) + "," + word(i / 20 + 1) + "\tread_by\tann\n");
  }
  std::set<std::string> names[2];
  for (const int round : {0, 1}) {
    std::string text;
    for (const std::string& line : lines) text += line;
    if (round == 0) {
      AddInput(text);
    } else {
      Write("input0.tsv", text);
      options_.force = true;
    }
    const absl::StatusOr<ImportReport> report = Run();
    ASSERT_THAT(report, IsOk());
    EXPECT_NEAR(report->entities[0].counts[0], report->entities[0].counts[1], 1);
    const std::vector<std::string> first = Names("document", 0);
    names[round] = {first.begin(), first.end()};
    std::ranges::reverse(lines);
  }
  EXPECT_EQ(names[0], names[1]);
}

TEST_F(PartitionedFeaturesImportTest, WhatIsDroppedBringsNothingTogether) {
  options_.rare.entity_min_count = 2;
  options_.rare.relation_min_count = 2;
  // `both` is rare, and so is the relation in which dog and hund are one entity.
  AddInput(
      "dog,cat\tread_by\tann\nhund,katze\tread_by\tann\n"
      "dog,cat,both\tread_by\tann\nhund,katze\tread_by\tann\n"
      "dog,hund\tcites\tdog,hund\n");

  const absl::StatusOr<ImportReport> report = Run();

  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(Names("document", 0), ElementsAre("dog", "cat"));
  EXPECT_THAT(Names("document", 1), ElementsAre("hund", "katze"));
  EXPECT_EQ(Edges(0, {0, 0}).size(), 2u);
  EXPECT_EQ(Edges(0, {1, 0}).size(), 2u);
}

TEST_F(PartitionedFeaturesImportTest, WhatCannotBePartedIsImportedWithAWarning) {
  AddInput("dog,cat\tread_by\tann\ncat,bird\tread_by\tann\nfish\tread_by\tann\n");
  ASSERT_THAT(Run(), IsOk());
  options_.force = true;
  AddInput("fish,bird\tread_by\tann\n");

  const absl::StatusOr<ImportReport> report = Run();

  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->entities[0].counts, (std::vector<int64_t>{4, 0}));
  EXPECT_THAT(report->warnings,
              ElementsAre(AllOf(HasSubstr("entity type document: one of its 2 partitions has 4 of "
                                          "its 4 features"),
                                HasSubstr("4 hang together. Make its num_partitions 1"))));
}

TEST_F(FeaturesImportTest, AnotherConfigurationIsNoticed) {
  AddInput("dog,cat\tread_by\tann\n");
  ASSERT_THAT(Run(), IsOk());
  options_.schema.entities[0].featurized = false;

  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("entities.document.featurized")));
  EXPECT_THAT(
      CheckDataset(options_.schema, options_.entity_path, options_.edge_paths),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("entities.document.featurized")));
}

}  // namespace
}  // namespace weft
