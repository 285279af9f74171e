#include "graph/entity_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "services/common/file_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempDir;

TEST(EntityFilesTest, CountsComeBack) {
  const TempDir dir;
  ASSERT_THAT(WriteEntityCount(dir.path(), "user", 3, 12'345'678'901), IsOk());
  ASSERT_THAT(WriteRelationCount(dir.path(), 0), IsOk());

  EXPECT_EQ(*ReadEntityCount(dir.path(), "user", 3), 12'345'678'901);
  EXPECT_EQ(*ReadRelationCount(dir.path()), 0);
  EXPECT_EQ(*ReadFile(dir.File("entity_count_user_3.txt")), "12345678901\n");
}

TEST(EntityFilesTest, ACountThatIsNoneIsDataLoss) {
  const TempDir dir;
  for (const char* text : {"", "-1", "3 4", "3.0", "0x3", "99999999999999999999"}) {
    ASSERT_THAT(WriteFileAtomically(dir.File("entity_count_user_0.txt"), text), IsOk());
    EXPECT_THAT(ReadEntityCount(dir.path(), "user", 0),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("entity_count_user_0.txt: is not a count")));
  }
  EXPECT_THAT(ReadEntityCount(dir.path(), "user", 1), StatusIs(absl::StatusCode::kNotFound));
}

TEST(EntityFilesTest, NamesComeBackWhateverTheyHold) {
  const TempDir dir;
  const std::vector<std::string> names = {
      "plain",  "New York", "tab\there",  "quote\"back\\slash",
      "Zürich", "東京",     "\U0001F600", std::string("nul\0x", 5),
      "\x7F",   ""};
  ASSERT_THAT(WriteEntityNames(dir.path(), "city", 0, names), IsOk());

  auto read = ReadEntityNames(dir.path(), "city", 0);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, names);
}

TEST(EntityFilesTest, NamesAreWrittenInAsciiAsPbgWritesThem) {
  const TempDir dir;
  ASSERT_THAT(WriteRelationNames(dir.path(), std::vector<std::string>{"a\"b", "é", "\U0001F600"}),
              IsOk());

  EXPECT_EQ(*ReadFile(dir.File("dynamic_rel_names.json")),
            "[\n    \"a\\\"b\",\n    \"\\u00e9\",\n    \"\\ud83d\\ude00\"\n]");
}

TEST(EntityFilesTest, NoNamesAreAnEmptyArray) {
  const TempDir dir;
  ASSERT_THAT(WriteRelationNames(dir.path(), {}), IsOk());

  EXPECT_EQ(*ReadFile(dir.File("dynamic_rel_names.json")), "[]");
  EXPECT_THAT(*ReadRelationNames(dir.path()), ElementsAre());
}

TEST(EntityFilesTest, NamesThatAreNotUtf8AreRefusedAndLeaveNoFile) {
  const TempDir dir;
  for (const char* bad : {"\xFF\xFE", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    EXPECT_THAT(WriteEntityNames(dir.path(), "x", 0, std::vector<std::string>{"good", bad}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name 1")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(EntityFilesTest, FilesThatAreNoListOfNamesAreDataLoss) {
  const TempDir dir;
  for (const char* text : {"", "{}", "[1]", "[\"a\", null]", "[\"a\"", "[\"a\"] x", "[[\"a\"]]",
                           "\"a\"", "[\"a\",]", "[{\"a\": 1}]"}) {
    SCOPED_TRACE(text);
    ASSERT_THAT(WriteFileAtomically(dir.File("entity_names_x_0.json"), text), IsOk());
    EXPECT_THAT(ReadEntityNames(dir.path(), "x", 0),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("entity_names_x_0.json")));
  }
}

}  // namespace
}  // namespace weft
