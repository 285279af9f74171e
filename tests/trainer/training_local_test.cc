// The training loop over the real coordinator, stores and files of one machine, with a step that
// counts: whatever the order, the residency and the interruptions, every edge counts once a pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "graph/checkpoint/embeddings_file.h"
#include "graph/edge_bucket_file.h"
#include "graph/entity_files.h"
#include "services/common/random.h"
#include "services/common/status_macros.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/local/local_run.h"
#include "services/trainer/training_loop.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/training_fakes.h"

namespace weft {
namespace {

using testing::CountingStepFactory;
using testing::IsOk;
using testing::TempDir;

constexpr int kPartitions = 4;
constexpr int64_t kEntities = 25;  // a partition
constexpr int kEpochs = 2;

class TrainingLocalTest : public ::testing::Test {
 protected:
  TrainingLocalTest() {
    config_.entities = {{"user", kPartitions, false, {}}};
    config_.relations = {{"knows"}};
    config_.dimension = 4;
    config_.init_scale = 0;
    config_.global_emb = false;
    config_.entity_path = dir_.File("entities");
    config_.edge_paths = {dir_.File("edges")};
    config_.num_epochs = kEpochs;
    config_.eval_fraction = 0;
    config_.batch_size = 10;
    config_.seed = 1;
    std::filesystem::create_directories(config_.entity_path);
    std::filesystem::create_directories(config_.edge_paths[0]);
    RandomStream random(1, RandomUse::kTest);
    for (PartitionId l = 0; l < kPartitions; ++l) {
      EXPECT_THAT(WriteEntityCount(config_.entity_path, "user", l, kEntities), IsOk());
      for (PartitionId r = 0; r < kPartitions; ++r) WriteBucket({l, r}, &random);
    }
  }

  void WriteBucket(Bucket bucket, RandomStream* random) {
    EdgeList edges;
    for (int i = 0; i < 60; ++i) {
      edges.lhs.push_back(static_cast<EntityOffset>(random->Below(kEntities)));
      edges.rhs.push_back(static_cast<EntityOffset>(random->Below(kEntities)));
      edges.rel.push_back(0);
      ++degree_[bucket.lhs][2 * edges.lhs.back()];
      ++degree_[bucket.rhs][2 * edges.rhs.back() + 1];
    }
    auto writer = EdgeBucketWriter::Create(EdgeBucketPath(config_.edge_paths[0], bucket), false);
    ASSERT_THAT(writer, IsOk());
    ASSERT_THAT((*writer)->Append(edges), IsOk());
    ASSERT_THAT((*writer)->Finish(), IsOk());
  }

  // Trains until the run is done, or until `batches` batches were trained.
  absl::StatusOr<TrainingSummary> Train(int batches = 1 << 30) {
    std::atomic<bool> stop = false;
    std::atomic<int> trained = 0;
    CountingStepFactory steps;
    steps.hook = [&](const EdgeBatch&) {
      if (++trained >= batches) stop = true;
      return absl::OkStatus();
    };
    WEFT_ASSIGN_OR_RETURN(const LocalData data, ReadLocalData(config_));
    LocalRun::Options open;
    open.data = data;
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<LocalRun> run,
                          LocalRun::Open(config_, std::move(open)));
    WEFT_ASSIGN_OR_RETURN(TrainingTask task, MakeTrainingTask(run->config(), data.entity_counts,
                                                              data.num_dynamic_relations));
    task.seed = *run->config().seed;
    WEFT_ASSIGN_OR_RETURN(SharedState live, MakeSharedState(task, steps));
    TrainingLoop::Options options;
    options.num_threads = 2;
    options.pipeline.prefetch = config_.prefetch;
    options.pipeline.resident_partitions = config_.resident_partitions;
    options.pipeline.background_store = background_store_;
    TrainingLoop loop(task, options,
                      {&run->lock(), &run->params(), &run->partitions(), &steps, nullptr}, &live);
    return loop.Run(stop);
  }

  void ExpectEveryEdgeOnceAPass() {
    for (PartitionId p = 0; p < kPartitions; ++p) {
      const auto table = ReadEmbeddingsFile(
          absl::StrCat(config_.checkpoint_path, "/embeddings_user_", p, ".v", kEpochs, ".h5"),
          kEntities, 4);
      ASSERT_THAT(table, IsOk());
      for (int i = 0; i < kEntities; ++i) {
        for (int side = 0; side < 2; ++side) {
          EXPECT_EQ(table->embeddings.row(i)[side], kEpochs * degree_[p][2 * i + side])
              << "partition " << p << " entity " << i << " side " << side;
        }
      }
    }
  }

  TempDir dir_;
  RunConfig config_;
  bool background_store_ = true;
  std::map<PartitionId, std::map<int, int>> degree_;  // [partition][2 offset + side]
};

TEST_F(TrainingLocalTest, EveryEdgeCountsOnceAPassWhateverThePipeline) {
  int run = 0;
  for (const BucketOrder order : {BucketOrder::kInsideOut, BucketOrder::kRandom}) {
    for (const double commit_seconds : {0.0, 60.0}) {
      for (const bool background : {true, false}) {
        for (const int resident : {2, 3}) {
          for (const bool prefetch : {true, false}) {
            config_.bucket_order = order;
            config_.commit_seconds = commit_seconds;
            config_.resident_partitions = resident;
            config_.prefetch = prefetch;
            background_store_ = background;
            config_.checkpoint_path = dir_.File(absl::StrCat("model_", run++));
            SCOPED_TRACE(absl::StrCat("order ", order == BucketOrder::kRandom ? "random" : "inside",
                                      " commit_seconds ", commit_seconds, " background ",
                                      background, " resident ", resident, " prefetch ", prefetch));
            ASSERT_THAT(Train(), IsOk());
            ExpectEveryEdgeOnceAPass();
          }
        }
      }
    }
  }
}

TEST_F(TrainingLocalTest, EveryEdgeCountsOnceAPassWhenItIsStoppedAgainAndAgain) {
  config_.checkpoint_path = dir_.File("model");
  config_.commit_seconds = 0;
  int stops = 0;
  RandomStream random(2, RandomUse::kTest);
  while (true) {
    // A pass has 96 batches.
    const auto summary = Train(1 + static_cast<int>(random.Below(30)));
    ASSERT_THAT(summary, IsOk());
    if (!summary->stopped) break;
    ASSERT_LT(++stops, 1000);
  }
  EXPECT_GT(stops, 5);
  ExpectEveryEdgeOnceAPass();
}

}  // namespace
}  // namespace weft
