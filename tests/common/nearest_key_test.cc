#include "services/common/nearest_key.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft {
namespace {

TEST(EditDistanceTest, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("margin", "margn"), 1);
  EXPECT_EQ(EditDistance("margn", "margin"), 1);
  EXPECT_EQ(EditDistance("margin", "merges"), 3);
  EXPECT_EQ(EditDistance("dimension", "dimensoin"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(EditDistanceTest, CapitalsAreNoDifference) { EXPECT_EQ(EditDistance("LR", "lr"), 0); }

TEST(NearestIndexTest, TakesTheFirstAmongEquals) {
  const std::vector<std::string> names = {"abd", "abe", "xyz"};

  EXPECT_EQ(NearestIndex("abc", names), 0);
  EXPECT_EQ(NearestIndex("xxz", names), 2);
  EXPECT_EQ(NearestIndex("abc", {}), -1);
}

TEST(SuggestionTest, ANearNameIsAQuestion) {
  EXPECT_EQ(Suggestion("dimensoin", {"lr", "dimension"}), "; did you mean \"dimension\"?");
}

TEST(SuggestionTest, FewFarNamesAreListed) {
  EXPECT_EQ(Suggestion("zebra", {"lr", "dimension"}), "; valid: lr, dimension");
}

TEST(SuggestionTest, OfManyFarNamesTheNearestIsTold) {
  const std::vector<std::string> names = {"aaaaaa", "bbbbbb", "cccccc", "dddddd", "eeeeee",
                                          "ffffff", "gggggg", "hhhhhh", "zebu"};

  EXPECT_EQ(Suggestion("zxyba", names), "; the nearest is \"zebu\"");
}

TEST(SuggestionTest, ThereIsNoneWithoutNames) { EXPECT_EQ(Suggestion("x", {}), ""); }

TEST(SuggestionTest, LongWordsAreComparedByTheirBeginning) {
  const std::string word(1 << 20, 'a');

  EXPECT_EQ(Suggestion(word, {word + "b"}), "; did you mean \"" + word + "b\"?");
}

}  // namespace
}  // namespace weft
