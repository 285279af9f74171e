#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "graph/import/feature_groups.h"
#include "services/common/random.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Bag = std::vector<EntityOffset>;

std::vector<uint32_t> All(size_t count) {
  std::vector<uint32_t> features(count);
  std::iota(features.begin(), features.end(), 0u);
  return features;
}

TEST(FeatureGroupsTest, WhatHangsTogetherThroughOthersStaysTogether) {
  const std::vector<std::string_view> names = {"a", "b", "c", "d", "e", "f"};
  FeatureGroups groups(6);
  groups.Join(Bag{0, 1});
  groups.Join(Bag{2, 3});
  groups.Join(Bag{});
  groups.Join(Bag{4, 4});
  groups.Join(Bag{1, 3});

  const FeatureGroups::Placement placement = groups.Place(All(6), names, 2);

  EXPECT_THAT(placement.partitions, ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_EQ(placement.largest_group, 4);
  EXPECT_EQ(placement.largest_partition, 4);
}

TEST(FeatureGroupsTest, TheLargestComesFirstIntoTheEmptiestThenTheFirstName) {
  const std::vector<std::string_view> names = {"z", "y", "x", "b", "a", "d", "c", "e"};
  FeatureGroups groups(8);
  groups.Join(Bag{0, 1, 2});  // 3
  groups.Join(Bag{3, 5});     // 2, first name b
  groups.Join(Bag{4, 6});     // 2, first name a
  // Alone: e.
  const FeatureGroups::Placement placement = groups.Place(All(8), names, 2);

  // xyz, then ac beside it, then bd where there are two, then e where there are three.
  EXPECT_THAT(placement.partitions, ElementsAre(0, 0, 0, 1, 1, 1, 1, 0));
}

TEST(FeatureGroupsTest, SomePartitionsMayStayEmpty) {
  const std::vector<std::string_view> names = {"a", "b"};
  FeatureGroups groups(2);
  groups.Join(Bag{0, 1});

  EXPECT_THAT(groups.Place(All(2), names, 3).partitions, ElementsAre(0, 0));
  EXPECT_EQ(groups.Place({}, names, 3).largest_partition, 0);
  EXPECT_THAT(FeatureGroups(0).Place({}, {}, 3).partitions, IsEmpty());
}

TEST(FeatureGroupsTest, WhatIsNotPlacedDoesNotCount) {
  const std::vector<std::string_view> names = {"a", "b", "c"};
  FeatureGroups groups(3);
  const std::vector<uint32_t> placed = {2, 1};

  const FeatureGroups::Placement placement = groups.Place(placed, names, 2);

  EXPECT_THAT(placement.partitions, ElementsAre(0, 0, 1));
  EXPECT_EQ(placement.largest_partition, 1);
}

// 10,000 features in 500 groups, numbered and joined in any order.
TEST(FeatureGroupsTest, OnlyNamesAndGroupsDecide) {
  constexpr int kFeatures = 10'000;
  constexpr int kGroups = 500;
  std::vector<std::string> words;
  for (int i = 0; i < kFeatures; ++i) words.push_back("w" + std::to_string(i));
  std::vector<PartitionId> of_word[2];
  for (const int round : {0, 1}) {
    RandomStream random(17, RandomUse::kTest, static_cast<uint64_t>(round));
    std::vector<int> word_of(kFeatures);  // by feature
    std::iota(word_of.begin(), word_of.end(), 0);
    for (size_t i = word_of.size(); i > 1; --i) {
      std::swap(word_of[i - 1], word_of[random.Below(static_cast<uint32_t>(i))]);
    }
    std::vector<std::string_view> names(kFeatures);
    std::vector<Bag> members(kGroups);
    for (int f = 0; f < kFeatures; ++f) {
      names[f] = words[word_of[f]];
      members[word_of[f] % kGroups].push_back(f);
    }
    FeatureGroups groups(kFeatures);
    for (uint32_t k = 1; k < kFeatures / kGroups; ++k) {
      for (const Bag& group : members) groups.Join(Bag{group[k], group[random.Below(k)]});
    }
    const FeatureGroups::Placement placement = groups.Place(All(kFeatures), names, 8);
    EXPECT_EQ(placement.largest_group, kFeatures / kGroups);
    EXPECT_LE(placement.largest_partition, kFeatures / 8 + kFeatures / kGroups);
    of_word[round].resize(kFeatures);
    for (int f = 0; f < kFeatures; ++f) of_word[round][word_of[f]] = placement.partitions[f];
  }
  EXPECT_TRUE(of_word[0] == of_word[1]);
}

}  // namespace
}  // namespace weft
