#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "services/common/random.h"
#include "tests/lock_server/coordinator_fixture.h"
#include "tests/lock_server/coordinator_run.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_seed.h"

namespace weft {
namespace {

using testing::IsOk;
using testing::MakePlan;
using testing::MakeState;
using testing::ReleaseOf;
using testing::StartRun;

// Random sessions that acquire, release, abandon, leave, restart everything: every bucket of every
// pass is done exactly once, and each current version holds each done bucket of its partition once.
TEST(RunCoordinatorPropertyTest, EveryBucketIsDoneOnceWhateverSessionsDo) {
  const uint64_t seed = testing::TestSeed(20240612);
  SCOPED_TRACE(::testing::Message() << "WEFT_TEST_SEED=" << seed);
  RandomStream random(seed, RandomUse::kTest, 2);
  const int partitions = 5;
  RunPlan plan = MakePlan(partitions);
  plan.num_epochs = 12;
  plan.bucket_edges[0][3] = 0;
  MemoryRunStore store;
  auto coordinator = StartRun(plan, MakeState(partitions), &store);
  // What each version was trained with: a count of buckets by partition.
  std::map<PartitionVersion, std::multiset<Bucket>> content;
  struct Trainer {
    RunCoordinator::SessionId session = 0;
    uint64_t number = 0;
    std::vector<Grant> grants;
  };
  std::vector<Trainer> trainers(3);
  std::set<Token> tokens;
  for (Trainer& t : trainers) t.session = coordinator->Register();
  int passes = 0;
  for (int step = 0; step < 100000 && passes < plan.num_epochs; ++step) {
    Trainer& t = trainers[random.Below(3)];
    const uint32_t action = random.Below(100);
    if (action < 45) {
      std::vector<PartitionVersion> resident;
      for (const Grant& g : t.grants) {
        for (const GrantedPartition& p : g.partitions) resident.push_back({p.key, g.token});
      }
      const auto result =
          coordinator->Acquire(t.session, {++t.number, resident, absl::ZeroDuration()});
      ASSERT_THAT(result, IsOk());
      if (!result->grant.has_value()) continue;
      const Grant& grant = *result->grant;
      ASSERT_TRUE(tokens.insert(grant.token).second) << "a token was used twice";
      for (const GrantedPartition& p : grant.partitions) {
        std::multiset<Bucket> trained = content[{p.key, p.base}];
        for (const GrantedBucket& b : grant.buckets) {
          if (b.bucket.lhs == p.key.partition || b.bucket.rhs == p.key.partition) {
            trained.insert(b.bucket);
          }
        }
        content[{p.key, grant.token}] = std::move(trained);
      }
      t.grants.push_back(grant);
    } else if (action < 80 && !t.grants.empty()) {
      const Grant grant = t.grants.front();
      ASSERT_THAT(coordinator->Release(t.session, ReleaseOf(grant)), IsOk());
      t.grants.erase(t.grants.begin());
    } else if (action < 90 && !t.grants.empty()) {
      // The oldest is given back; what starts from it ends, too: the trainer begins anew.
      ASSERT_THAT(coordinator->Abandon(t.session, t.grants.front().token), IsOk());
      ASSERT_THAT(coordinator->Leave(t.session), IsOk());
      t = Trainer{coordinator->Register(), 0, {}};
    } else if (action < 95) {
      ASSERT_THAT(coordinator->Leave(t.session), IsOk());
      t = Trainer{coordinator->Register(), 0, {}};
    } else if (action < 97) {
      coordinator = StartRun(plan, **store.Load(), &store);
      for (Trainer& other : trainers) other = Trainer{coordinator->Register(), 0, {}};
    }
    const std::optional<CompletePass> pass = coordinator->complete_pass();
    if (!pass.has_value()) continue;
    std::set<Bucket> done;
    for (const DoneBucket& b : pass->buckets) {
      ASSERT_TRUE(done.insert(b.stats.bucket).second) << "a bucket was done twice";
    }
    ASSERT_EQ(done.size(), static_cast<size_t>(partitions * partitions - 1));
    ++passes;
    for (const PartitionVersion& version : pass->versions) {
      const std::multiset<Bucket>& trained = content[version];
      for (const Bucket& b : done) {
        const bool uses = b.lhs == version.key.partition || b.rhs == version.key.partition;
        ASSERT_EQ(trained.count(b), uses ? static_cast<size_t>(passes) : 0u);
      }
    }
    ASSERT_THAT(coordinator->PassCommitted(pass->version), IsOk());
  }
  EXPECT_EQ(passes, plan.num_epochs);
}

}  // namespace
}  // namespace weft
