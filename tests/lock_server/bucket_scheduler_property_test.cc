// The bucket scheduler over random steps, compared with its rules the slow way, and at a million
// buckets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "services/common/random.h"
#include "services/lock_server/bucket_order.h"
#include "services/lock_server/bucket_scheduler.h"
#include "tests/lock_server/scheduler_shapes.h"
#include "tests/testing/test_seed.h"

namespace weft {
namespace {

using testing::Bipartite;
using ::testing::ElementsAre;
using testing::kAllFurther;
using testing::kNoFurther;
using testing::Lexicographic;
using testing::OneType;

// What the scheduler's rules are, the slow way.
class Model {
 public:
  explicit Model(const BucketScheduler& scheduler) : scheduler_(scheduler) {}

  void CheckNoSharing() const {
    std::map<PartitionKey, uint64_t> owner;
    for (const auto& [grant, state] : grants_) {
      for (const Bucket& b : state.second) {
        for (const PartitionKey& key : scheduler_.PartitionsOf(b)) {
          const auto [found, is_new] = owner.try_emplace(key, state.first);
          ASSERT_EQ(found->second, state.first) << "two sessions share a partition";
        }
      }
    }
  }

  bool Grantable(uint64_t session, Bucket b) const {
    if (done_.contains(b)) return false;
    for (const auto& [grant, state] : grants_) {
      if (std::ranges::find(state.second, b) != state.second.end()) return false;
      if (state.first == session) continue;
      for (const Bucket& held : state.second) {
        for (const PartitionKey& key : scheduler_.PartitionsOf(held)) {
          for (const PartitionKey& mine : scheduler_.PartitionsOf(b)) {
            if (key == mine) return false;
          }
        }
      }
    }
    return true;
  }

  std::map<uint64_t, std::pair<uint64_t, std::vector<Bucket>>> grants_;
  std::set<Bucket> done_;

 private:
  const BucketScheduler& scheduler_;
};

class BucketSchedulerPropertyTest
    : public ::testing::TestWithParam<std::pair<const char*, BucketScheduler::Options>> {};

TEST_P(BucketSchedulerPropertyTest, HoldsItsRulesOverRandomSteps) {
  const BucketScheduler::Options& options = GetParam().second;
  const uint64_t seed = testing::TestSeed(20240611);
  SCOPED_TRACE(::testing::Message() << "WEFT_TEST_SEED=" << seed);
  RandomStream random(seed, RandomUse::kTest);
  const std::vector<Bucket> all = Lexicographic(options.num_lhs, options.num_rhs);
  BucketScheduler scheduler(options);
  uint64_t next_grant = 1;
  for (int pass = 0; pass < 30; ++pass) {
    Model model(scheduler);
    scheduler.BeginPass(
        MakeBucketOrder(BucketOrder::kAffinity, options.num_lhs, options.num_rhs, seed, pass), {});
    std::map<uint64_t, std::vector<PartitionKey>> resident;
    while (scheduler.num_done() < scheduler.num_buckets()) {
      const uint64_t session = 1 + random.Below(5);
      const uint32_t action = random.Below(10);
      if (action < 5) {
        const BucketScheduler::Request request = {.session = session,
                                                  .resident = resident[session]};
        const auto buckets = scheduler.Grant(
            request, next_grant,
            [&](const std::vector<Bucket>&, Bucket) { return random.Below(2) == 0; });
        const bool any =
            std::ranges::any_of(all, [&](const Bucket& b) { return model.Grantable(session, b); });
        ASSERT_EQ(!buckets.empty(), any);
        if (buckets.empty()) continue;
        std::set<PartitionKey> first;
        for (const PartitionKey& key : scheduler.PartitionsOf(buckets[0])) first.insert(key);
        for (const Bucket& b : buckets) {
          ASSERT_TRUE(model.Grantable(session, b));
          for (const PartitionKey& key : scheduler.PartitionsOf(b)) {
            ASSERT_TRUE(first.contains(key)) << "a further bucket needs another partition";
          }
        }
        resident[session].assign(first.begin(), first.end());
        model.grants_[next_grant++] = {session, buckets};
        if (random.Below(2) == 0) {
          scheduler.Hint({.session = session, .resident = resident[session]});
        }
      } else if (!model.grants_.empty()) {
        auto grant = model.grants_.begin();
        std::advance(grant, random.Below(static_cast<uint32_t>(model.grants_.size())));
        if (action < 8) {
          scheduler.Finish(grant->first);
          for (const Bucket& b : grant->second.second) {
            ASSERT_TRUE(model.done_.insert(b).second) << "a bucket was done twice";
          }
        } else {
          scheduler.Return(grant->first);
        }
        model.grants_.erase(grant);
      }
      model.CheckNoSharing();
      ASSERT_EQ(scheduler.num_done(), static_cast<int64_t>(model.done_.size()));
    }
    ASSERT_EQ(model.done_.size(), all.size());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, BucketSchedulerPropertyTest,
    ::testing::Values(std::pair("OneType", OneType(6)), std::pair("Bipartite", Bipartite(3, 5)),
                      std::pair("OneSide",
                                BucketScheduler::Options{
                                    .num_lhs = 4, .num_rhs = 1, .types = {{0, true, false, 3}}}),
                      std::pair("Mixed",
                                BucketScheduler::Options{.num_lhs = 4,
                                                         .num_rhs = 4,
                                                         .types = {{0, true, true, 5},
                                                                   {2, true, false, 7},
                                                                   {3, false, true, 11}}})),
    [](const auto& info) { return info.param.first; });

// What the fewest bytes are, by trying every bucket.
TEST(BucketSchedulerPropertyTest, ChoosesAmongTheCheapest) {
  const BucketScheduler::Options options = {
      .num_lhs = 6,
      .num_rhs = 6,
      .types = {{0, true, true, 50}, {2, true, false, 20}, {3, false, true, 7}}};
  const uint64_t seed = testing::TestSeed(20240611);
  SCOPED_TRACE(::testing::Message() << "WEFT_TEST_SEED=" << seed);
  RandomStream random(seed, RandomUse::kTest, 1);
  const std::vector<Bucket> order = MakeBucketOrder(BucketOrder::kRandom, 6, 6, seed, 0);
  for (int round = 0; round < 300; ++round) {
    std::vector<Bucket> done;
    for (const Bucket& b : order) {
      if (random.Below(3) == 0) done.push_back(b);
    }
    if (done.size() == order.size()) continue;
    std::vector<PartitionKey> resident;
    for (const EntityTypeId type : {0, 2, 3}) {
      for (int p = 0; p < 6; ++p) {
        if (random.Below(4) == 0) resident.push_back({type, p});
      }
    }
    BucketScheduler scheduler(options);
    scheduler.BeginPass(order, done);
    const auto cost = [&](Bucket b) {
      std::pair<int64_t, int64_t> load_and_minus_used;
      for (const PartitionKey& key : scheduler.PartitionsOf(b)) {
        const int64_t bytes = key.entity_type == 0 ? 50 : key.entity_type == 2 ? 20 : 7;
        const bool here = std::ranges::find(resident, key) != resident.end();
        load_and_minus_used.first += here ? 0 : bytes;
        load_and_minus_used.second -= bytes;
      }
      return load_and_minus_used;
    };
    std::vector<Bucket> free;
    for (const Bucket& b : order) {
      if (std::ranges::find(done, b) == done.end()) free.push_back(b);
    }
    // The first of the cheapest, in the configured order.
    const Bucket expected = *std::ranges::min_element(free, {}, cost);

    const auto granted = scheduler.Grant({.session = 1, .resident = resident}, 1, kNoFurther);

    ASSERT_THAT(granted, ElementsAre(expected));
  }
}

TEST(BucketSchedulerTest, AMillionBucketsAreGrantedWithoutLookingAtAll) {
  const int partitions = 1024;
  const BucketScheduler::Options options = OneType(partitions);
  BucketScheduler scheduler(options);
  scheduler.BeginPass(MakeBucketOrder(BucketOrder::kInsideOut, partitions, partitions, 1, 0), {});
  std::map<uint64_t, std::vector<PartitionKey>> resident;

  // 512 sessions, the most that can train at once, take 20 buckets each.
  uint64_t grant = 1;
  for (int round = 0; round < 20; ++round) {
    std::vector<uint64_t> live;
    for (uint64_t session = 1; session <= 512; ++session) {
      const auto buckets =
          scheduler.Grant({.session = session, .resident = resident[session]}, grant, kAllFurther);
      if (buckets.empty()) continue;
      resident[session] = scheduler.PartitionsOf(buckets[0]);
      live.push_back(grant++);
    }
    ASSERT_GT(live.size(), 450u) << "in round " << round;
    for (const uint64_t id : live) scheduler.Finish(id);
  }

  EXPECT_GT(scheduler.num_done(), 20 * 450);
}

}  // namespace
}  // namespace weft
