#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "graph/import/edge_parser.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DatasetSchema Schema() {
  DatasetSchema schema;
  schema.entities = {{"user", 1}, {"item", 1}};
  schema.relations = {{"likes", 0, 1}, {"follows", 0, 0}};
  return schema;
}

EdgeBlock Parse(const std::string& text, const EdgeParser::Options& options,
                const DatasetSchema& schema = Schema()) {
  EdgeBlock edges;
  edges.block.data = std::make_unique<char[]>(text.size());
  std::memcpy(edges.block.data.get(), text.data(), text.size());
  edges.block.size = text.size();
  edges.first = true;
  const EntityDictionary relations = RelationDictionary(schema);
  EdgeParser(options, schema, relations).Parse(&edges);
  return edges;
}

EdgeParser::Options Options(int rel_column, int weight_column) {
  EdgeParser::Options options;
  options.format.columns = {0, 1, rel_column, weight_column};
  return options;
}

std::vector<std::string> Bad(const EdgeBlock& edges) {
  std::vector<std::string> bad;
  for (const BadLine& line : edges.lines.bad) {
    bad.push_back(std::to_string(line.line) + ": " + line.reason);
  }
  return bad;
}

TEST(EdgeParserTest, TheRelationDecidesTheTypesOfBothSides) {
  const EdgeBlock edges = Parse("a\tb\tlikes\na\tb\tfollows\n", Options(2, -1));

  EXPECT_THAT(edges.rel, ElementsAre(0, 1));
  EXPECT_THAT(edges.lhs_hash, ElementsAre(EntityHasher("user")("a"), EntityHasher("user")("a")));
  EXPECT_THAT(edges.rhs_hash, ElementsAre(EntityHasher("item")("b"), EntityHasher("user")("b")));
}

TEST(EdgeParserTest, WithoutARelationColumnEveryEdgeHasTheFirst) {
  const EdgeBlock edges = Parse("a\tb\n", Options(-1, -1));

  EXPECT_EQ(edges.relation(0), 0);
  EXPECT_THAT(edges.rhs_hash, ElementsAre(EntityHasher("item")("b")));
}

TEST(EdgeParserTest, AnUnknownRelationIsNamed) {
  const EdgeBlock edges = Parse("a\tb\tlikes\nc\td\tr9\n", Options(2, -1));

  EXPECT_EQ(edges.size(), 1u);
  EXPECT_THAT(Bad(edges), ElementsAre(HasSubstr("1: relation \"r9\" is not in the configuration")));
}

TEST(EdgeParserTest, UnknownRelationsAreSkippedAndCountedWhenAsked) {
  EdgeParser::Options options = Options(2, -1);
  options.skip_unknown_relations = true;

  const EdgeBlock edges = Parse("a\tb\tr9\nc\td\tlikes\ne\tf\tr8\n", options);

  EXPECT_EQ(edges.size(), 1u);
  EXPECT_EQ(edges.lines.fields[0][0], "c");
  EXPECT_EQ(edges.unknown_relations, 2);
  EXPECT_THAT(Bad(edges), IsEmpty());
}

TEST(EdgeParserTest, DynamicRelationsAreOnlyHashed) {
  DatasetSchema schema = Schema();
  schema.dynamic_relations = true;

  const EdgeBlock edges = Parse("a\tb\tr9\n", Options(2, -1), schema);

  EXPECT_THAT(edges.rel, IsEmpty());
  EXPECT_THAT(edges.rel_hash, ElementsAre(HashBytes("r9")));
  EXPECT_THAT(edges.rhs_hash, ElementsAre(EntityHasher("item")("b")));
}

TEST(EdgeParserTest, ReadsFractionalWeightsExactly) {
  const EdgeBlock edges = Parse("a\tb\t0.5\na\tb\t1.9\na\tb\t0.25\na\tb\t3.0\n", Options(-1, 2));

  EXPECT_THAT(edges.weight, ElementsAre(0.5f, 1.9f, 0.25f, 3.0f));
}

TEST(EdgeParserTest, EveryBadWeightIsReportedWithItsLine) {
  const EdgeBlock edges = Parse(
      "a\tb\theavy\na\tb\tnan\na\tb\t-1\na\tb\na\tb\tinf\na\tb\t1x\na\tb\t\nc\td\t1\na\tb\t1e99\n",
      Options(-1, 2));

  EXPECT_THAT(edges.weight, ElementsAre(1.0f));
  EXPECT_EQ(edges.lines.fields[0][0], "c");
  EXPECT_THAT(Bad(edges),
              ElementsAre("0: weight \"heavy\" is not a number", "1: weight \"nan\" is not finite",
                          "2: weight \"-1\" is negative", "3: has 2 fields, needs 3",
                          "4: weight \"inf\" is not finite", "5: weight \"1x\" is not a number",
                          "6: empty weight", "8: weight \"1e99\" does not fit a 32-bit float"));
}

TEST(EdgeParserTest, ABadLineKeepsTheColumnsTogether) {
  const EdgeBlock edges =
      Parse("a\tb\tlikes\t1\nc\td\tr9\t2\ne\tf\tfollows\tx\ng\th\tfollows\t4\n", Options(2, 3));

  ASSERT_EQ(edges.size(), 2u);
  EXPECT_THAT(edges.rel, ElementsAre(0, 1));
  EXPECT_THAT(edges.weight, ElementsAre(1.0f, 4.0f));
  EXPECT_EQ(edges.lines.fields[0][1], "g");
  EXPECT_EQ(edges.lines.fields[1][1], "h");
  EXPECT_THAT(edges.lines.line, ElementsAre(0u, 3u));
  EXPECT_EQ(edges.lhs_hash[1], EntityHasher("user")("g"));
}

TEST(ParseWeightTest, TakesWhatWritersWrite) {
  const auto parse = [](std::string_view text) {
    float weight = -1;
    EXPECT_EQ(ParseWeight(text, &weight), nullptr) << text;
    return weight;
  };
  EXPECT_EQ(parse("1"), 1.0f);
  EXPECT_EQ(parse("+1.5"), 1.5f);
  EXPECT_EQ(parse("1e3"), 1000.0f);
  EXPECT_EQ(parse("0"), 0.0f);
  EXPECT_FALSE(std::signbit(parse("-0")));
  EXPECT_EQ(parse("1e-40"), 1e-40f);  // subnormal
  EXPECT_EQ(parse("3.4028235e38"), std::numeric_limits<float>::max());
  // 2^-24 above a tie: rounding first to double would give 1.
  EXPECT_EQ(parse("1.00000005960464477540"), 1.00000012f);
}

TEST(ParseWeightTest, RefusesWhatOnlyLooksLikeANumber) {
  float weight = 0;
  for (const char* text : {"", "+", "-", "1 ", " 1", "0x10", "1,5", "--1", "+-1", "1e", "NaN(1)"}) {
    EXPECT_NE(ParseWeight(text, &weight), nullptr) << text;
  }
}

}  // namespace
}  // namespace weft
