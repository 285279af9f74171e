#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "services/common/available_memory.h"
#include "services/common/file_util.h"
#include "services/trainer/memory_plan.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Optional;
using testing::StatusIs;
using testing::TempDir;

constexpr int64_t kMega = 1'000'000;

// A million entities of dimension 99: 400 MB in `partitions` partitions.
TrainingTask MakeTask(int partitions) {
  TrainingTask task;
  task.config.entities = {{"user", partitions, false, {}}};
  task.config.relations = {{"knows"}};
  task.config.dimension = 99;
  task.config.threads = 1;
  task.config.eval_fraction = 0;
  task.entity_counts = {std::vector<int64_t>(partitions, kMega / partitions)};
  task.spec = *MakeModelSpec(task.config, 0);
  return task;
}

TEST(MemoryPlanTest, OnePartitionNeedsTheTableOnce) {
  const auto plan = PlanMemory(MakeTask(1), {});
  ASSERT_THAT(plan, IsOk());
  EXPECT_GE(plan->bytes, 400 * kMega);
  EXPECT_LE(plan->bytes, 400 * kMega + 100 * kMega);
}

TEST(MemoryPlanTest, StepsDownWhenMemoryIsShort) {
  const TrainingTask task = MakeTask(4);  // a bucket has two partitions of 100 MB
  const int64_t base = PlanMemory(task, {})->bytes - 400 * kMega;

  const auto all = PlanMemory(task, {0, base + 400 * kMega});
  ASSERT_THAT(all, IsOk());
  EXPECT_TRUE(all->prefetch && all->background_store);

  const auto less = PlanMemory(task, {0, base + 399 * kMega});
  ASSERT_THAT(less, IsOk());
  EXPECT_TRUE(!less->prefetch && less->background_store);

  const auto least = PlanMemory(task, {0, base + 199 * kMega});
  ASSERT_THAT(least, IsOk());
  EXPECT_TRUE(!least->prefetch && !least->background_store);
  EXPECT_EQ(least->bytes, base);
}

TEST(MemoryPlanTest, RefusesWithBothFigures) {
  EXPECT_THAT(PlanMemory(MakeTask(1), {0, 100 * kMega}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("needs about 0.47 GB"), HasSubstr("0.10 GB are available"),
                             HasSubstr("entities.user.num_partitions = "))));
}

TEST(MemoryPlanTest, SaysWithHowManyPartitionsItFits) {
  const TrainingTask task = MakeTask(2);
  const MemoryNeeds needs = {0, 150 * kMega};

  const std::optional<FittingPartitions> fit = FindFittingPartitions(task, needs);

  ASSERT_TRUE(fit.has_value());
  EXPECT_THAT(fit->entity_types, ElementsAre("user"));
  EXPECT_GT(fit->num_partitions, 2);
  EXPECT_THAT(PlanMemory(MakeTask(fit->num_partitions), needs), IsOk());
  EXPECT_FALSE(PlanMemory(MakeTask(fit->num_partitions - 1), needs).ok());
}

TEST(MemoryPlanTest, SaysWhenNoNumberOfPartitionsIsEnough) {
  TrainingTask task = MakeTask(2);
  task.config.num_batch_negs = task.spec.num_batch_negs = 100'000;  // batches as large as a table
  EXPECT_EQ(FindFittingPartitions(task, {0, 150 * kMega}), std::nullopt);
  EXPECT_THAT(PlanMemory(task, {0, 150 * kMega}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("no number of partitions"), HasSubstr("batches in work"))));
}

// The features of a type that has one partition may be such that they cannot be parted.
TEST(MemoryPlanTest, DoesNotAdviseToCutWhatCannotBeCut) {
  TrainingTask task = MakeTask(1);
  task.config.entities[0].featurized = true;
  EXPECT_EQ(FindFittingPartitions(task, {0, 100 * kMega}), std::nullopt);
  EXPECT_THAT(PlanMemory(task, {0, 100 * kMega}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no number of partitions")));

  task = MakeTask(2);
  task.config.entities[0].featurized = true;
  const auto fit = FindFittingPartitions(task, {0, 150 * kMega});
  ASSERT_TRUE(fit.has_value());
  EXPECT_THAT(fit->entity_types, ElementsAre("user"));
}

TEST(MemoryPlanTest, ThePartsAreTheWhole) {
  TrainingTask task = MakeTask(4);
  task.config.resident_partitions = 5;
  const auto here = PlanMemory(task, {kMega, std::nullopt});
  const auto there = PlanMemory(task, {kMega, std::nullopt, /*in_cluster=*/true});
  ASSERT_THAT(here, IsOk());
  int64_t sum = 0;
  for (const MemoryPlan::Part& part : here->parts) sum += part.bytes;
  EXPECT_EQ(sum, here->bytes);
  EXPECT_GT(there->bytes, here->bytes);
}

TEST(MemoryPlanTest, AChunkIsAPartOfTheLargestBucket) {
  RunConfig config;
  EXPECT_EQ(LargestEdgeChunk(config, 10), 10);
  config.max_edges_per_chunk = 4;
  EXPECT_EQ(LargestEdgeChunk(config, 10), 4);
  config.num_edge_chunks = 2;
  EXPECT_EQ(LargestEdgeChunk(config, 10), 5);
}

TEST(MemoryPlanTest, PrefetchStaysOffWhenConfiguredSo) {
  TrainingTask task = MakeTask(4);
  task.config.prefetch = false;
  EXPECT_FALSE(PlanMemory(task, {})->prefetch);
}

TEST(MemoryPlanTest, EdgesCount) {
  TrainingTask task = MakeTask(1);
  task.config.prefetch = false;
  EXPECT_EQ(PlanMemory(task, {100 * kMega, std::nullopt})->bytes - PlanMemory(task, {})->bytes,
            1200 * kMega);
}

// 8 bytes an edge and 4 a feature, of one side; twice, since the lists grow.
TEST(MemoryPlanTest, FeaturesCountWhereATypeIsFeaturized) {
  TrainingTask task = MakeTask(1);
  task.config.entities = {{"document", 1, true, {}}, {"user", 1, false, {}}};
  task.config.relations = {{.name = "read_by", .lhs = 0, .rhs = 1}};
  task.entity_counts = {{kMega}, {10}};
  task.spec = *MakeModelSpec(task.config, 0);
  MemoryNeeds needs = {.bucket_edges = 10 * kMega, .bucket_features = 300 * kMega};
  const auto bytes_of = [](const MemoryPlan& plan, const std::string& what) {
    const auto part = std::ranges::find(plan.parts, what, &MemoryPlan::Part::what);
    return part == plan.parts.end() ? 0 : part->bytes;
  };

  const auto plan = PlanMemory(task, needs);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(bytes_of(*plan, "features of the bucket's edges"), 2 * (80 + 1200) * kMega);
  // The gradients of 30 features an edge.
  MemoryNeeds without = needs;
  without.bucket_features = 0;
  EXPECT_EQ(
      bytes_of(*plan, "batches in work") - bytes_of(*PlanMemory(task, without), "batches in work"),
      30 * 1000 * 99 * 4);
  needs.available = 3'000 * kMega;
  EXPECT_THAT(PlanMemory(task, needs),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("needs about 3.")));

  // What a cluster tells of edges without features may be weights.
  EXPECT_EQ(PlanMemory(MakeTask(1), {.bucket_edges = 100, .bucket_features = 100})->bytes,
            PlanMemory(MakeTask(1), {.bucket_edges = 100})->bytes);
}

// However many negatives are drawn, a batch has no more distinct rows than the tables.
TEST(MemoryPlanTest, ABatchHasAtMostTheGradientsOfItsTables) {
  const auto bytes_of_batches = [](int64_t entities, int num_uniform_negs) {
    TrainingTask task = MakeTask(1);
    task.entity_counts[0] = {entities};
    task.spec.num_uniform_negs = num_uniform_negs;
    const auto plan = PlanMemory(task, {});
    EXPECT_THAT(plan, IsOk());
    return std::ranges::find(plan->parts, "batches in work", &MemoryPlan::Part::what)->bytes;
  };
  const int64_t of_one_row = bytes_of_batches(2'000, 1'000) - bytes_of_batches(1'999, 1'000);
  EXPECT_GT(of_one_row, 0);
  EXPECT_EQ(bytes_of_batches(10'000, 1'000) - bytes_of_batches(9'000, 1'000), 1'000 * of_one_row);
  // Twenty chunks of a thousand, and a thousand positives.
  EXPECT_EQ(bytes_of_batches(21'000, 1'000), bytes_of_batches(50'000, 1'000));
}

TEST(MemoryPlanTest, AChunkHasItsShareOfTheFeatures) {
  RunConfig config;
  EXPECT_EQ(FeaturesOfChunk(config, 10, 70), 70);
  config.max_edges_per_chunk = 4;
  EXPECT_EQ(FeaturesOfChunk(config, 10, 70), 24);
}

// Each thread keeps the gradients of a whole table, or of two.
TEST(MemoryPlanTest, AllNegativesTakeTheGradientsOfAllRows) {
  const auto more_with_all = [](TrainingTask task) {
    task.config.threads = 2;
    const int64_t before = PlanMemory(task, {})->bytes;
    for (RelationConfig& relation : task.config.relations) relation.all_negs = true;
    task.spec = *MakeModelSpec(task.config, 0);
    return PlanMemory(task, {})->bytes - before;
  };
  EXPECT_EQ(more_with_all(MakeTask(1)), 2 * 400 * kMega);
  EXPECT_EQ(more_with_all(MakeTask(4)), 2 * 2 * 100 * kMega);
  TrainingTask one_side = MakeTask(4);
  one_side.config.disable_lhs_negs = true;
  EXPECT_EQ(more_with_all(one_side), 2 * 100 * kMega);
}

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::string full = root_.File(path);
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    ASSERT_THAT(WriteFileAtomically(full, text), IsOk());
  }

  TempDir root_;
};

TEST_F(AvailableMemoryTest, IsWhatTheKernelSaysWithoutLimits) {
  Write("proc/meminfo", "MemTotal:  2000 kB\nMemFree: 10 kB\nMemAvailable:    1000 kB\n");
  EXPECT_THAT(AvailableMemory(root_.path()), Optional(1000 * 1024));
}

TEST_F(AvailableMemoryTest, IsLessInAControlGroupWithALimit) {
  Write("proc/meminfo", "MemAvailable: 1000 kB\n");
  Write("proc/self/cgroup", "0::/outer/inner\n");
  Write("sys/fs/cgroup/outer/memory.max", "500000\n");
  Write("sys/fs/cgroup/outer/memory.current", "300000\n");
  Write("sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 20000\nactive_file 10000\n");
  Write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  Write("sys/fs/cgroup/outer/inner/memory.current", "100\n");
  EXPECT_THAT(AvailableMemory(root_.path()), Optional(500000 - 270000));
}

TEST_F(AvailableMemoryTest, KnowsVersion1) {
  Write("proc/meminfo", "MemAvailable: 1000 kB\n");
  Write("proc/self/cgroup", "5:cpu:/c\n4:memory:/box\n0::/\n");
  Write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "400000\n");
  Write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "100000\n");
  Write("sys/fs/cgroup/memory/box/memory.stat", "total_inactive_file 50000\n");
  EXPECT_THAT(AvailableMemory(root_.path()), Optional(350000));
}

TEST_F(AvailableMemoryTest, IsUnknownWithoutTheKernelsFiles) {
  EXPECT_EQ(AvailableMemory(root_.path()), std::nullopt);
}

}  // namespace
}  // namespace weft
