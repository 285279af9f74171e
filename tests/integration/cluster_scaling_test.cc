// Trainers are started and stopped while the run goes on, from one to eight and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/integration/cluster_world.h"
#include "tests/testing/http_get.h"

namespace weft {
namespace {

using ::weft::testing::ClusterOf;
using ::weft::testing::ExpectLastPassIsExact;
using ::weft::testing::HttpGet;
using ::weft::testing::LocalCluster;
using ::weft::testing::NewestVersion;
using ::weft::testing::SmallWorld;
using ::weft::testing::TrainWorld;

constexpr int kMost = 8;
constexpr int kManyEpochs = 10'000;  // the test ends before

class ClusterScalingTest : public ::testing::Test {
 protected:
  ClusterScalingTest() : world_(Options()) {
    LocalCluster::Options options = ClusterOf(world_);
    options.trainers = 1;
    cluster_.emplace(options);
  }

  // Twice as many partitions as trainers, so that each can have a bucket; leases that no busy
  // machine lets run out; every pass is there to be looked at in the end.
  static TrainWorld::Options Options() {
    TrainWorld::Options options = SmallWorld({{"num_epochs", kManyEpochs},
                                              {"commit_seconds", 0},
                                              {"lease_seconds", 60},
                                              {"checkpoint_preservation_interval", 1}});
    options.num_partitions = 2 * kMost;
    return options;
  }

  // Looks until `condition` holds; whoever is seen with buckets is in `at_work_` then.
  v1::GetRunStateResponse Await(const std::string& what, const LocalCluster::Condition& condition) {
    return cluster_->Await(what, [&](const v1::GetRunStateResponse& state) {
      std::map<int, std::string> holders;
      for (const v1::TrainerInfo& trainer : state.trainers()) {
        if (!trainer.buckets().empty()) at_work_.insert(trainer.name());
        for (const v1::Bucket& bucket : trainer.buckets()) {
          for (const int partition : {bucket.lhs(), bucket.rhs()}) {
            const auto held = holders.emplace(partition, trainer.name());
            EXPECT_EQ(held.first->second, trainer.name()) << "both hold partition " << partition;
          }
        }
      }
      return condition(state);
    });
  }

  // The sum over all series of a metric of the lock server that have these labels.
  double Metric(const std::string& name_and_labels) {
    const std::string page =
        HttpGet(cluster_->processes().MetricsAddress("lock-server"), "/metrics").body;
    double sum = 0;
    bool found = false;
    for (absl::string_view line : absl::StrSplit(page, '\n')) {
      double value = 0;
      if (!absl::ConsumePrefix(&line, absl::StrCat(name_and_labels, " "))) continue;
      EXPECT_TRUE(absl::SimpleAtod(line, &value)) << line;
      sum += value;
      found = true;
    }
    EXPECT_TRUE(found) << name_and_labels;
    return sum;
  }
  double Ended(const std::string& what, const std::string& reason) {
    return Metric(absl::StrCat("weft_lock_", what, "_ended_total{reason=\"", reason, "\"}"));
  }

  const TrainWorld world_;
  std::optional<LocalCluster> cluster_;
  std::set<std::string> at_work_;
};

TEST_F(ClusterScalingTest, TrainersGoFromOneToEightAndBackAndEveryPassIsExact) {
  ASSERT_TRUE(cluster_->ok());
  Await("a pass by one trainer",
        [](const v1::GetRunStateResponse& state) { return NewestVersion(state) >= 1; });

  for (int more = 1; more < kMost; ++more) ASSERT_TRUE(cluster_->processes().AddTrainer().ok());
  Await("eight at work",
        [&](const v1::GetRunStateResponse& state) { return at_work_.size() == kMost; });
  const int64_t with_all = NewestVersion(*cluster_->lock_server().GetRunState(false));
  Await("a pass by eight trainers",
        [&](const v1::GetRunStateResponse& state) { return NewestVersion(state) >= with_all + 2; });
  EXPECT_EQ(Metric("weft_lock_sessions"), kMost);

  for (int left = kMost - 1; left > 0; --left) {
    cluster_->processes().Find(absl::StrCat("trainer-", left))->Signal(SIGTERM);
  }
  const v1::GetRunStateResponse alone =
      Await("one is left",
            [](const v1::GetRunStateResponse& state) { return state.trainers().size() == 1; });
  at_work_.clear();
  const v1::GetRunStateResponse end =
      Await("a pass by the last one", [&](const v1::GetRunStateResponse& state) {
        return NewestVersion(state) >= NewestVersion(alone) + 2;
      });
  EXPECT_THAT(at_work_, ::testing::ElementsAre("trainer-0"));

  // They left, with what they had not finished handed back; no lease ran out, nothing was refused.
  for (int left = kMost - 1; left > 0; --left) {
    cli::ChildProcess* const trainer = cluster_->processes().Find(absl::StrCat("trainer-", left));
    trainer->Stop(absl::Seconds(60));
    EXPECT_EQ(trainer->exit_code(), 0) << cluster_->Logs();
  }
  EXPECT_EQ(Ended("sessions", "left"), kMost - 1);
  for (const std::string reason : {"silent", "stalled", "refused", "rewound"}) {
    EXPECT_EQ(Ended("sessions", reason), 0) << reason;
  }
  for (const std::string reason : {"unknown", "expired", "refused", "failed", "rewound"}) {
    EXPECT_EQ(Ended("grants", reason), 0) << reason;
  }
  EXPECT_EQ(end.context().generation(), 1u);
  for (int64_t version = 1; version <= NewestVersion(end); ++version) {
    ExpectLastPassIsExact(&*cluster_, world_, version);
  }
}

}  // namespace
}  // namespace weft
