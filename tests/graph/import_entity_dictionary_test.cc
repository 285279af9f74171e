#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/entity_dictionary.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

EntityOffset Intern(EntityDictionary* dictionary, const std::string& name) {
  return dictionary->Intern(HashBytes(name), name);
}

std::vector<std::string> Names(const EntityDictionary& dictionary, PartitionId partition) {
  std::vector<std::string> names;
  dictionary.ForEachName(partition, [&](std::string_view name) { names.emplace_back(name); });
  return names;
}

TEST(EntityDictionaryTest, GivesOffsetsInOrderOfFirstAppearance) {
  EntityDictionary dictionary(1);

  EXPECT_EQ(Intern(&dictionary, "b"), 0);
  EXPECT_EQ(Intern(&dictionary, "a"), 1);
  EXPECT_EQ(Intern(&dictionary, "b"), 0);
  EXPECT_EQ(dictionary.size(), 2);
  EXPECT_THAT(Names(dictionary, 0), ElementsAre("b", "a"));
}

TEST(EntityDictionaryTest, CountsOffsetsWithinEachPartition) {
  EntityDictionary dictionary(2);

  // The hash decides the partition: even and odd.
  EXPECT_EQ(dictionary.Intern(10, "a"), 0);
  EXPECT_EQ(dictionary.Intern(11, "b"), 0);
  EXPECT_EQ(dictionary.Intern(12, "c"), 1);

  EXPECT_THAT(Names(dictionary, 0), ElementsAre("a", "c"));
  EXPECT_THAT(Names(dictionary, 1), ElementsAre("b"));
  EXPECT_EQ(dictionary.size(0), 2);
  EXPECT_EQ(dictionary.size(1), 1);
}

TEST(EntityDictionaryTest, ThePartitionMayBeTheCallersChoice) {
  EntityDictionary dictionary(2);

  EXPECT_EQ(dictionary.InternIn(1, 10, "a"), 0);
  EXPECT_EQ(dictionary.InternIn(1, 11, "b"), 1);
  EXPECT_EQ(dictionary.InternIn(1, 10, "a"), 0);
  EXPECT_EQ(dictionary.Find(11, "b"), 1);

  EXPECT_THAT(Names(dictionary, 0), IsEmpty());
  EXPECT_THAT(Names(dictionary, 1), ElementsAre("a", "b"));
}

TEST(EntityDictionaryTest, TellsNamesWithEqualHashesApart) {
  EntityDictionary dictionary(1);

  EXPECT_EQ(dictionary.Intern(42, "a"), 0);
  EXPECT_EQ(dictionary.Intern(42, "b"), 1);
  EXPECT_EQ(dictionary.Intern(42, "a"), 0);
  EXPECT_EQ(dictionary.Find(42, "b"), 1);
  EXPECT_EQ(dictionary.Find(42, "c"), EntityDictionary::kNone);
}

TEST(EntityDictionaryTest, WrapsAroundTheEndOfTheTable) {
  EntityDictionary dictionary(1);

  // All belong into the last slot.
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(dictionary.Intern(~uint64_t{0} - i, std::to_string(i)), static_cast<int>(i));
  }
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(dictionary.Find(~uint64_t{0} - i, std::to_string(i)), static_cast<int>(i));
  }
}

TEST(EntityDictionaryTest, FindDoesNotAdd) {
  EntityDictionary dictionary(1);

  EXPECT_EQ(dictionary.Find(HashBytes("a"), "a"), EntityDictionary::kNone);
  EXPECT_EQ(dictionary.size(), 0);
  EXPECT_THAT(Names(dictionary, 0), IsEmpty());
}

TEST(EntityDictionaryTest, KeepsNamesLongerThanItsChunks) {
  EntityDictionary dictionary(1);
  const std::string large(3'000'000, 'x');

  Intern(&dictionary, "small");
  Intern(&dictionary, large);
  Intern(&dictionary, "");

  EXPECT_THAT(Names(dictionary, 0), ElementsAre("small", large, ""));
}

TEST(EntityDictionaryTest, AgreesWithAMapWhileItGrows) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr int kPartitions = 3;
  EntityDictionary dictionary(kPartitions);
  std::map<std::string, EntityOffset> expected;
  std::vector<std::vector<std::string>> names(kPartitions);

  for (int i = 0; i < 50'000; ++i) {
    const std::string name = std::to_string(random() % 20'000);
    const PartitionId partition = StablePartition(HashBytes(name), kPartitions);
    const auto [known, is_new] =
        expected.emplace(name, static_cast<EntityOffset>(names[partition].size()));
    if (is_new) names[partition].push_back(name);
    ASSERT_EQ(Intern(&dictionary, name), known->second);
  }

  for (PartitionId partition = 0; partition < kPartitions; ++partition) {
    EXPECT_EQ(Names(dictionary, partition), names[partition]);
  }
}

TEST(EntityDictionaryTest, PrefetchingChangesNothing) {
  EntityDictionary dictionary(1);
  dictionary.PrefetchSlot(7);
  dictionary.PrefetchName(7);

  EXPECT_EQ(dictionary.Intern(7, "a"), 0);
  dictionary.PrefetchName(7);
  EXPECT_EQ(dictionary.size(), 1);
}

}  // namespace
}  // namespace weft
