#include "cli/data_sketch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace weft::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

// The sketch of a text that must have one.
DataSketch Sketch(const std::string& text) {
  const auto sketch = SketchData(text, /*whole=*/true);
  EXPECT_THAT(sketch, IsOk());
  return sketch.value_or(DataSketch());
}

// `n` triples over `relations` relations, as a knowledge graph has them.
std::string Triples(int n, int relations) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    absl::StrAppend(&text, "e", i % 40, "\tr", i % relations, "\te", (i * 7 + 3) % 40, "\n");
  }
  return text;
}

TEST(DataSketchTest, TriplesInTheUsualOrder) {
  const DataSketch sketch = Sketch(Triples(100, 5));

  EXPECT_EQ(sketch.delimiter, '\t');
  EXPECT_EQ(sketch.lhs_column, 0);
  EXPECT_EQ(sketch.rel_column, 1);
  EXPECT_EQ(sketch.rhs_column, 2);
  EXPECT_EQ(sketch.weight_column, DataSketch::kNoColumn);
  EXPECT_FALSE(sketch.has_header);
  EXPECT_EQ(sketch.num_edges, 100);
  EXPECT_EQ(sketch.num_relations, 5);
  EXPECT_EQ(sketch.num_names, 40);
}

TEST(DataSketchTest, TheRelationMayBeTheLastColumn) {
  const DataSketch sketch = Sketch("a\tb\tlikes\nb\tc\tlikes\nc\td\thates\nd\ta\tlikes\n");

  EXPECT_EQ(sketch.lhs_column, 0);
  EXPECT_EQ(sketch.rhs_column, 1);
  EXPECT_EQ(sketch.rel_column, 2);
  EXPECT_THAT(sketch.relations, ElementsAre("likes", "hates"));
}

TEST(DataSketchTest, TwoColumnsHaveNoRelation) {
  const DataSketch sketch = Sketch("1 2\n2 3\n3 1\n");

  EXPECT_EQ(sketch.delimiter, ' ');
  EXPECT_EQ(sketch.rel_column, DataSketch::kNoColumn);
  EXPECT_EQ(sketch.num_names, 3);
}

TEST(DataSketchTest, NamesWithSpacesStayWhole) {
  const DataSketch sketch = Sketch("New York\tcapital of\tUSA\nOslo\tcapital of\tNorway\n");

  EXPECT_EQ(sketch.delimiter, '\t');
  EXPECT_THAT(sketch.relations, ElementsAre("capital of"));
}

TEST(DataSketchTest, QuotedFieldsMayHoldCommas) {
  const DataSketch sketch = Sketch("\"a, the first\",r,b\nb,r,\"say \"\"c\"\"\"\nb,r,d\n");

  EXPECT_EQ(sketch.delimiter, ',');
  EXPECT_TRUE(sketch.quoted);
  EXPECT_EQ(sketch.num_edges, 3);
  EXPECT_EQ(sketch.num_columns, 3);
}

TEST(DataSketchTest, QuotedFieldsMayBeSeparatedBySemicolons) {
  const DataSketch sketch = Sketch("\"a; the first\";\"r\";\"b\"\nb;r;c\nb;r;d\n");

  EXPECT_EQ(sketch.delimiter, ';');
  EXPECT_TRUE(sketch.quoted);
  EXPECT_THAT(sketch.relations, ElementsAre("r"));
}

TEST(DataSketchTest, DecimalsInTheLastColumnAreWeights) {
  const DataSketch sketch = Sketch("1\t2\t0.5\n2\t3\t1.9\n3\t1\t0.25\n");

  EXPECT_EQ(sketch.weight_column, 2);
  EXPECT_EQ(sketch.rel_column, DataSketch::kNoColumn);
}

TEST(DataSketchTest, WholeNumbersInAThirdColumnOfIdsAreRelations) {
  const DataSketch sketch = Sketch("10\t20\t1\n20\t30\t2\n30\t40\t1\n40\t50\t2\n");

  EXPECT_EQ(sketch.weight_column, DataSketch::kNoColumn);
  EXPECT_EQ(sketch.rel_column, 2);
}

TEST(DataSketchTest, IdsOfEntitiesAreNoWeights) {
  const DataSketch sketch = Sketch("03\t_hyponym\t04\n04\t_hypernym\t05\n05\t_hyponym\t03\n");

  EXPECT_EQ(sketch.weight_column, DataSketch::kNoColumn);
  EXPECT_EQ(sketch.rel_column, 1);
  EXPECT_EQ(sketch.rhs_column, 2);
}

TEST(DataSketchTest, TimesAreNoWeights) {
  const DataSketch sketch =
      Sketch("a\tr\tb\t1577836800\nb\tr\tc\t1577836801\nc\tr\ta\t1577836805\n");

  EXPECT_EQ(sketch.weight_column, DataSketch::kNoColumn);
  EXPECT_EQ(sketch.rel_column, 1);
  EXPECT_THAT(sketch.reasons, Contains(HasSubstr("Column 3 is not used")));
}

TEST(DataSketchTest, MoreRelationsThanEntitiesAreStillRelations) {
  const DataSketch sketch =
      Sketch("usa\ttrade1\tuk\nuk\ttrade2\tusa\nusa\tvisit\tuk\nuk\tally\tusa\n");

  EXPECT_EQ(sketch.rel_column, 1);
  EXPECT_EQ(sketch.num_names, 2);
}

TEST(DataSketchTest, AFourthColumnOfNumbersIsTheWeight) {
  const DataSketch sketch = Sketch("a\tr\tb\t3\nb\tr\tc\t1\nc\ts\ta\t2\n");

  EXPECT_EQ(sketch.weight_column, 3);
  EXPECT_EQ(sketch.rel_column, 1);
}

TEST(DataSketchTest, UsualColumnNamesMakeAHeader) {
  const DataSketch sketch = Sketch("relation,tail,head\nr,b,a\nr,c,b\ns,a,c\n");

  EXPECT_TRUE(sketch.has_header);
  EXPECT_EQ(sketch.rel_column, 0);
  EXPECT_EQ(sketch.rhs_column, 1);
  EXPECT_EQ(sketch.lhs_column, 2);
  EXPECT_EQ(sketch.num_edges, 3);
}

TEST(DataSketchTest, UsualColumnNamesThatAreNamesOfEntitiesMakeNone) {
  const DataSketch sketch = Sketch("user\tr\titem\nitem\tr\tuser\nuser\tr\tx\nx\tr\titem\n");

  EXPECT_FALSE(sketch.has_header);
  EXPECT_EQ(sketch.num_edges, 4);
}

TEST(DataSketchTest, AWordAboveTheWeightsMakesAHeader) {
  const DataSketch sketch = Sketch("x\ty\tz\na\tb\t0.5\nb\tc\t0.25\n");

  EXPECT_TRUE(sketch.has_header);
  EXPECT_EQ(sketch.weight_column, 2);
  EXPECT_EQ(sketch.num_edges, 2);
}

TEST(DataSketchTest, AFirstLineOfNamesThatNeverRecurIsAHeader) {
  const DataSketch sketch = Sketch("x\ty\tz\n" + Triples(100, 5));

  EXPECT_TRUE(sketch.has_header);
  EXPECT_EQ(sketch.num_relations, 5);
}

TEST(DataSketchTest, ColumnsBetweenKnownOnesAreRelations) {
  const DataSketch sketch = Sketch("head\thow\ttail\na\tr\tb\nb\ts\tc\n");

  EXPECT_TRUE(sketch.has_header);
  EXPECT_EQ(sketch.rel_column, 1);
}

TEST(DataSketchTest, BothSidesApartAreBipartite) {
  EXPECT_TRUE(Sketch("u1\ti1\nu2\ti1\nu1\ti2\n").bipartite());
  EXPECT_FALSE(Sketch("u1\ti1\ni1\tu1\n").bipartite());
}

TEST(DataSketchTest, CarriageReturnsAndByteOrderMarksAreNoPartOfNames) {
  const DataSketch sketch = Sketch(
      "\xEF\xBB\xBF"
      "a\tr\tb\r\nb\tr\ta\r\na\tr\tb");

  EXPECT_EQ(sketch.num_names, 2);
}

TEST(DataSketchTest, LinesWithOtherNumbersOfFieldsAreLeftOut) {
  const DataSketch sketch = Sketch("a\tr\tb\nb\tr\na\tr\tc\n\n");

  EXPECT_EQ(sketch.num_edges, 2);
  EXPECT_THAT(sketch.reasons, Contains(HasSubstr("2 of 3 lines have 3 fields")));
}

TEST(DataSketchTest, ACutLastLineIsLeftOut) {
  const auto sketch = SketchData("a\tr\tb\nb\tr\tc\na\tr\tb", /*whole=*/false);

  ASSERT_THAT(sketch, IsOk());
  EXPECT_EQ(sketch->num_edges, 2);
}

TEST(DataSketchTest, NothingIsNoData) {
  EXPECT_THAT(SketchData("", true), StatusIs(absl::StatusCode::kInvalidArgument, "has no lines"));
  EXPECT_THAT(SketchData("a\tb", false),
              StatusIs(absl::StatusCode::kInvalidArgument, "has no lines"));
}

TEST(DataSketchTest, OneColumnIsNoEdge) {
  EXPECT_THAT(SketchData("a\nb\n", true), StatusIs(absl::StatusCode::kInvalidArgument,
                                                   HasSubstr("leave one column, as in: a")));
}

TEST(DataSketchTest, AHeaderAloneHasNoEdges) {
  const DataSketch sketch = Sketch("head\trelation\ttail\n");

  EXPECT_TRUE(sketch.has_header);
  EXPECT_EQ(sketch.num_edges, 0);
}

}  // namespace
}  // namespace weft::cli
