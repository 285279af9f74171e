#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "graph/import/line_parser.h"
#include "graph/import/utf8.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Row = std::vector<std::string>;

struct Parsed {
  std::vector<Row> rows;  // the fields asked for, in the order lhs, rhs, rel, weight
  std::vector<int64_t> lines;
  std::vector<std::string> bad;  // "line: reason: text"
  int64_t num_lines = 0;
  int64_t num_blank = 0;
};

LineBlock MakeBlock(const std::string& text, int64_t offset = 0, bool overlong = false) {
  LineBlock block;
  block.data = std::make_unique<char[]>(text.size() + 1);
  std::memcpy(block.data.get(), text.data(), text.size());
  block.size = text.size();
  block.capacity = text.size() + 1;
  block.offset = offset;
  block.overlong = overlong;
  return block;
}

Parsed Parse(const LineFormat& format, const LineBlock& block, bool skip_first = false) {
  ParsedLines lines;
  LineParser(format).Parse(block, skip_first, &lines);
  Parsed parsed;
  for (size_t i = 0; i < lines.size(); ++i) {
    Row& row = parsed.rows.emplace_back();
    for (const auto& field : lines.fields) {
      if (!field.empty()) row.emplace_back(field[i]);
    }
    parsed.lines.push_back(lines.line[i]);
  }
  for (const BadLine& bad : lines.bad) {
    parsed.bad.push_back(std::to_string(bad.line) + ": " + bad.reason + ": " +
                         std::string(bad.text));
  }
  parsed.num_lines = lines.num_lines;
  parsed.num_blank = lines.num_blank;
  return parsed;
}

Parsed Parse(const LineFormat& format, const std::string& text, bool skip_first = false) {
  return Parse(format, MakeBlock(text), skip_first);
}

// lhs, rel, rhs.
const LineFormat kTriples = {.columns = {0, 2, 1, LineFormat::kNoColumn}};
const LineFormat kPairs = {};
const LineFormat kCsvPairs = {.delimiter = ',', .quotes = true};

TEST(LineParserTest, TakesTheColumnsAskedFor) {
  const LineFormat format = {.columns = {3, 0, 2, 1}};

  const Parsed parsed = Parse(format, "a\tb\tc\td\te\n1\t2\t3\t4\n");

  EXPECT_THAT(parsed.rows, ElementsAre(Row{"d", "a", "c", "b"}, Row{"4", "1", "3", "2"}));
  EXPECT_THAT(parsed.bad, IsEmpty());
}

TEST(LineParserTest, NamesMayContainSpaces) {
  EXPECT_THAT(Parse(kTriples, "New York\tcapital of\tUSA\n").rows,
              ElementsAre(Row{"New York", "USA", "capital of"}));
}

TEST(LineParserTest, NamesMayContainNoBreakSpaces) {
  EXPECT_THAT(Parse(kPairs, "New\u00A0York\tb\n").rows, ElementsAre(Row{"New\u00A0York", "b"}));
}

TEST(LineParserTest, LineEndsAreNotPartOfTheLastColumn) {
  const std::vector<Row> expected = {{"a", "b", "r"}, {"c", "b", "r"}};

  EXPECT_EQ(Parse(kTriples, "a\tr\tb\nc\tr\tb").rows, expected);
  EXPECT_EQ(Parse(kTriples, "a\tr\tb\r\nc\tr\tb\r\n").rows, expected);
  EXPECT_EQ(Parse(kTriples, "a\tr\tb\r\nc\tr\tb\r").rows, expected);
}

TEST(LineParserTest, AShortLineIsBad) {
  const Parsed parsed = Parse(kTriples, "a\tr\tb\na\tb\nc\n");

  EXPECT_EQ(parsed.rows.size(), 1u);
  EXPECT_THAT(parsed.bad,
              ElementsAre("1: has 2 fields, needs 3: a\tb", "2: has 1 field, needs 3: c"));
}

TEST(LineParserTest, FieldsBeyondTheColumnsAreIgnored) {
  EXPECT_THAT(Parse(kPairs, "a\tb\tc\t\t\n").rows, ElementsAre(Row{"a", "b"}));
}

TEST(LineParserTest, AnEmptyFieldIsBadAndShiftsNothing) {
  const Parsed parsed = Parse(kTriples, "a\t\tb\tx\n\tr\tb\na\tr\t\n");

  EXPECT_THAT(parsed.rows, IsEmpty());
  EXPECT_THAT(parsed.bad,
              ElementsAre("0: empty relation: a\t\tb\tx", "1: empty left-hand entity: \tr\tb",
                          "2: empty right-hand entity: a\tr\t"));
}

TEST(LineParserTest, BlankLinesAreCounted) {
  const Parsed parsed = Parse(kPairs, "a\tb\n\n   \n\r\nc\td\n\n");

  EXPECT_THAT(parsed.rows, ElementsAre(Row{"a", "b"}, Row{"c", "d"}));
  EXPECT_THAT(parsed.lines, ElementsAre(0, 4));
  EXPECT_EQ(parsed.num_blank, 4);
  EXPECT_EQ(parsed.num_lines, 6);
  EXPECT_THAT(parsed.bad, IsEmpty());
}

TEST(LineParserTest, OnlyDelimitersAreNotBlank) {
  EXPECT_THAT(Parse(kPairs, "\t\n").bad, ElementsAre("0: empty left-hand entity: \t"));
}

TEST(LineParserTest, SkipsAHeaderAndCountsItAsALine) {
  const Parsed parsed = Parse(kPairs, "head\ttail\na\tb\n", /*skip_first=*/true);

  EXPECT_THAT(parsed.rows, ElementsAre(Row{"a", "b"}));
  EXPECT_THAT(parsed.lines, ElementsAre(1));
  EXPECT_EQ(parsed.num_lines, 2);
}

TEST(LineParserTest, InvalidUtf8IsBadAtAByteOffset) {
  const Parsed parsed = Parse(kPairs, MakeBlock("a\tb\nc\td\xFF\xFE\n", /*offset=*/100));

  EXPECT_EQ(parsed.rows.size(), 1u);
  EXPECT_THAT(parsed.bad,
              ElementsAre(HasSubstr(
                  "1: is not UTF-8 (0xFF) at byte 4 of the line, byte 108 of the input")));
}

TEST(LineParserTest, Utf16IsRecognized) {
  const std::string text(
      "\xFF\xFE"
      "a\0\t\0b\0\n\0",
      10);

  EXPECT_THAT(Parse(kPairs, text).bad[0], HasSubstr("NUL"));
  EXPECT_THAT(Parse(kPairs,
                    "\xFF\xFE"
                    "a\tb\n")
                  .bad[0],
              HasSubstr("UTF-16"));
}

TEST(LineParserTest, ANulByteIsBad) {
  const Parsed parsed = Parse(kPairs, std::string("a\tb\0c\nd\te\n", 10));

  EXPECT_THAT(parsed.rows, ElementsAre(Row{"d", "e"}));
  EXPECT_THAT(parsed.bad[0], HasSubstr("0: has a NUL byte at byte 4 of the line"));
}

TEST(LineParserTest, ALineThatIsTooLongIsBad) {
  LineFormat format;
  format.max_line_bytes = 10;

  EXPECT_THAT(Parse(format, "a\tb\n0123456789\t1\n").bad[0],
              HasSubstr("1: is longer than 10 bytes"));
  // Cut by the reader already.
  EXPECT_THAT(Parse(format, MakeBlock("a\tb\n0123456", 0, /*overlong=*/true)).bad[0],
              HasSubstr("1: is longer than 10 bytes"));
}

TEST(LineParserTest, QuotesMeanNothingInTsv) {
  EXPECT_THAT(Parse(kPairs, "\"a\t5\" pipe\n").rows, ElementsAre(Row{"\"a", "5\" pipe"}));
}

TEST(LineParserTest, CsvTakesQuotedFields) {
  EXPECT_THAT(Parse(kCsvPairs, "\"a,b\",c\na,\"say \"\"hi\"\"\"\nx,y\n").rows,
              ElementsAre(Row{"a,b", "c"}, Row{"a", "say \"hi\""}, Row{"x", "y"}));
}

TEST(LineParserTest, CsvKeepsSpacesAndQuotesWithinAField) {
  EXPECT_THAT(Parse(kCsvPairs, " a ,b \"c\"\n").rows, ElementsAre(Row{" a ", "b \"c\""}));
}

TEST(LineParserTest, CsvRefusesABrokenQuote) {
  const Parsed parsed = Parse(kCsvPairs, "\"a,b\n\"a\"x,b\na,\"\"\n\"a\"\n\"b\",\"c\"\r\n");

  EXPECT_THAT(parsed.rows, ElementsAre(Row{"b", "c"}));
  EXPECT_THAT(parsed.bad,
              ElementsAre("0: has a quoted field that does not end on its line: \"a,b",
                          "1: has text behind the closing quote at byte 3: \"a\"x,b",
                          "2: empty right-hand entity: a,\"\"", "3: has 1 field, needs 2: \"a\""));
}

TEST(LineParserTest, CsvWithAndWithoutQuotesIsTheSame) {
  const std::string plain = "a,b\nc,d,e\n\nf,g\n";

  const Parsed fast = Parse(kCsvPairs, plain);
  const Parsed slow = Parse(kCsvPairs, plain + "\"q\",r\n");

  ASSERT_EQ(slow.rows.size(), fast.rows.size() + 1);
  for (size_t i = 0; i < fast.rows.size(); ++i) EXPECT_EQ(slow.rows[i], fast.rows[i]);
}

TEST(LineParserTest, AgreesWithSplittingByHand) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    std::vector<Row> expected;
    for (size_t line = 0; line < random() % 30; ++line) {
      Row row;
      for (int field = 0; field < 4; ++field) row.emplace_back(1 + random() % 40, 'a' + field);
      text += row[0] + "\t" + row[1] + "\t" + row[2] + "\t" + row[3] + "\n";
      expected.push_back({row[2], row[0], row[3]});
    }
    ASSERT_EQ(Parse({.columns = {2, 0, 3, LineFormat::kNoColumn}}, text).rows, expected);
  }
}

TEST(Utf8Test, AcceptsWhatUnicodeAllows) {
  for (const std::string text : {"", "abc", "\u00E9", "\u20AC", "\U0001F600", "\U0010FFFF",
                                 "\uD7FF", "\uE000", "x\u00A0y"}) {
    EXPECT_EQ(FindInvalidUtf8(text), kWholeText) << text;
  }
}

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  EXPECT_EQ(FindInvalidUtf8("ab\x80"), 2u);            // a continuation alone
  EXPECT_EQ(FindInvalidUtf8("a\xC0\xAF"), 1u);         // overlong
  EXPECT_EQ(FindInvalidUtf8("\xE0\x80\xAF"), 0u);      // overlong
  EXPECT_EQ(FindInvalidUtf8("\xED\xA0\x80"), 0u);      // a surrogate
  EXPECT_EQ(FindInvalidUtf8("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(FindInvalidUtf8("\xF0\x80\x80\x80"), 0u);  // overlong
  EXPECT_EQ(FindInvalidUtf8("\xE2\x82"), 0u);          // cut short
  EXPECT_EQ(FindInvalidUtf8("\u20AC\xFF"), 3u);
}

TEST(Utf8Test, AsciiWithoutNulIsSeenAtEveryPosition) {
  const std::string text(100, 'a');
  EXPECT_TRUE(IsAsciiWithoutNul(text));
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = '\0';
    EXPECT_FALSE(IsAsciiWithoutNul(changed)) << i;
    changed[i] = '\x80';
    EXPECT_FALSE(IsAsciiWithoutNul(changed)) << i;
    changed[i] = '\x7F';
    EXPECT_TRUE(IsAsciiWithoutNul(changed)) << i;
  }
}

}  // namespace
}  // namespace weft
