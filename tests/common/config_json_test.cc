#include "services/common/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using Kind = JsonNode::Kind;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// What is wrong with `text`; empty when nothing is.
std::string ErrorOf(const std::string& text) {
  return std::string(ParseJson(text, "x").status().message());
}

TEST(ParseJsonTest, KeepsOrderKindsAndDigits) {
  const auto root = ParseJson(R"({"b": 1, "a": [true, null, -2.50, "x", {}]})", "x");

  ASSERT_THAT(root, IsOk());
  ASSERT_EQ(root->members.size(), 2u);
  EXPECT_EQ(root->members[0].key, "b");
  EXPECT_EQ(root->members[0].value.kind, Kind::kInteger);
  const JsonNode& list = root->members[1].value;
  ASSERT_EQ(list.elements.size(), 5u);
  EXPECT_TRUE(list.elements[0].boolean);
  EXPECT_EQ(list.elements[1].kind, Kind::kNull);
  EXPECT_EQ(list.elements[2].kind, Kind::kDecimal);
  EXPECT_EQ(list.elements[2].text, "-2.50");
  EXPECT_EQ(list.elements[3].text, "x");
  EXPECT_EQ(list.elements[4].kind, Kind::kObject);
}

TEST(ParseJsonTest, IntegersOfAnySizeKeepTheirDigits) {
  const auto root =
      ParseJson("[-9223372036854775808, 18446744073709551615, 123456789012345678901]", "x");

  ASSERT_THAT(root, IsOk());
  EXPECT_EQ(root->elements[0].text, "-9223372036854775808");
  EXPECT_EQ(root->elements[1].text, "18446744073709551615");
  EXPECT_EQ(root->elements[2].text, "123456789012345678901");
  EXPECT_EQ(root->elements[2].kind, Kind::kInteger);
}

TEST(ParseJsonTest, RepeatedKeysAreKept) {
  const auto root = ParseJson(R"({"a": 1, "a": 2})", "x");

  ASSERT_THAT(root, IsOk());
  EXPECT_EQ(root->members.size(), 2u);
}

TEST(ParseJsonTest, LinesAreThoseOfTheKeys) {
  const auto root = ParseJson("{\n\"a\":\n1,\n\"b\": [\n2,\n3\n]}", "x");

  ASSERT_THAT(root, IsOk());
  EXPECT_EQ(root->line, 0);
  EXPECT_EQ(root->Find("a")->line, 2);
  EXPECT_EQ(root->Find("b")->line, 4);
  EXPECT_EQ(root->Find("b")->elements[0].line, 5);
  EXPECT_EQ(root->Find("b")->elements[1].line, 6);
}

TEST(ParseJsonTest, SyntaxErrorsHaveLineAndColumn) {
  EXPECT_THAT(ErrorOf("{\n  \"a\" 1\n}"), HasSubstr("x:2:7: not valid JSON: "));
}

TEST(ParseJsonTest, UsualMistakesAreNamed) {
  EXPECT_EQ(ErrorOf(""), "x: is empty");
  EXPECT_EQ(ErrorOf(" \n"), "x: is empty");
  EXPECT_THAT(ErrorOf("{\"a\": 1 // c\n}"), HasSubstr("1:9: not valid JSON: comments"));
  EXPECT_THAT(ErrorOf("# c\n{}"), HasSubstr("1:1: not valid JSON: comments"));
  EXPECT_THAT(ErrorOf("{\"a\": 1,}"), HasSubstr("1:9: not valid JSON: a comma before '}'"));
  EXPECT_THAT(ErrorOf("[1,]"), HasSubstr("a comma before ']'"));
  EXPECT_THAT(ErrorOf("{'a': 1}"), HasSubstr("double quotes"));
  EXPECT_THAT(ErrorOf("[True]"), HasSubstr("lower case"));
  EXPECT_THAT(ErrorOf("[NaN]"), HasSubstr("NaN is not a JSON number"));
  EXPECT_THAT(ErrorOf("[-Infinity]"), HasSubstr("Infinity is not a JSON number"));
  EXPECT_THAT(ErrorOf("[1e999]"), HasSubstr("overflow"));
  EXPECT_THAT(ErrorOf("{} {}"), HasSubstr("expected end of input"));
  EXPECT_THAT(ErrorOf("\xEF\xBB\xBF{}"), HasSubstr("byte-order mark"));
  EXPECT_THAT(ErrorOf(std::string("{}\0{", 4)), HasSubstr("zero byte at byte 3"));
  EXPECT_THAT(ErrorOf("\xFF\xFE{"), HasSubstr("UTF-16"));
  EXPECT_THAT(ErrorOf("[\"\xFF\"]"), HasSubstr("ill-formed UTF-8"));
  EXPECT_THAT(ErrorOf("def get_torchbiggraph_config():\n  return {}\n"), HasSubstr("Python"));
}

TEST(ParseJsonTest, WhatOnlyLooksLikeJsonIsRefused) {
  for (const char* text : {"{", "[1", "{\"a\"}", "{a: 1}", "[01]", "[1.]", "[.5]", "[+1]", "[0x1]",
                           "[\"a\nb\"]", "[\"\\x\"]", "nul", "[\"\\ud800\"]"}) {
    EXPECT_THAT(ParseJson(text, "x"), StatusIs(kInvalid)) << text;
  }
}

TEST(ParseJsonTest, DepthIsLimited) {
  const std::string allowed = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');

  EXPECT_THAT(ParseJson(allowed, "x"), IsOk());
  EXPECT_THAT(ErrorOf("[" + allowed + "]"), HasSubstr("nested more than"));
  EXPECT_THAT(ErrorOf(std::string(1 << 20, '[')), HasSubstr("nested more than"));
}

TEST(ParseJsonTest, SizeIsLimited) {
  EXPECT_THAT(ErrorOf(std::string(kMaxJsonBytes + 1, ' ')), HasSubstr("bytes, more than"));
}

TEST(WriteJsonTest, WritesWhatWasRead) {
  const std::string text = R"({
  "z": [
    1,
    0.5,
    18446744073709551615
  ],
  "a": "\u0001\"é",
  "n": null,
  "t": true,
  "e": {}
}
)";
  const auto root = ParseJson(text, "x");

  ASSERT_THAT(root, IsOk());
  EXPECT_EQ(WriteJson(*root), text);
}

TEST(JsonNumberTest, IsShortestAndNoInteger) {
  EXPECT_EQ(JsonNumber(0), "0.0");
  EXPECT_EQ(JsonNumber(2), "2.0");
  EXPECT_EQ(JsonNumber(0.1), "0.1");
  EXPECT_EQ(JsonNumber(-1e-9), "-1e-09");
}

TEST(DescribeJsonTest, ShortensLongStringsBetweenCharacters) {
  JsonNode node;
  node.kind = Kind::kString;
  node.text = std::string(59, 'a') + "\xC3\xA9" + "b";

  EXPECT_EQ(DescribeJson(node), "the string \"" + std::string(59, 'a') + "...\"");
}

}  // namespace
}  // namespace weft
