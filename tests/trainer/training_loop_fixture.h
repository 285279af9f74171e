// A run for tests of TrainingLoop: fakes of all that it talks to, and a step that counts.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "graph/edge_bucket_file.h"
#include "services/common/random.h"
#include "services/common/status_macros.h"
#include "services/trainer/training_loop.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/training_fakes.h"

namespace weft::testing {

inline constexpr int64_t kEntities = 20;  // a partition
inline constexpr int kDimension = 4;

// One entity type in `partitions` partitions, one dynamic relation model, edges in every bucket.
class TrainingLoopTest : public ::testing::Test {
 protected:
  void SetUpRun(int partitions, int64_t edges_per_bucket = 50, double eval_fraction = 0) {
    RunConfig& config = task_.config;
    config.entities = {{"user", partitions, false, {}}};
    config.relations = {{.name = "knows"}};
    config.dynamic_relations = true;
    config.dimension = kDimension;
    config.init_scale = 0;  // the counting step counts from zero
    config.edge_paths = {dir_.path()};
    config.batch_size = 7;
    config.num_batch_negs = 7;
    config.eval_fraction = eval_fraction;
    config.eval_num_batch_negs = 7;
    task_.seed = 3;
    task_.entity_counts = {std::vector<int64_t>(partitions, kEntities)};
    auto spec = MakeModelSpec(config, 2);
    ASSERT_THAT(spec, IsOk());
    task_.spec = *std::move(spec);
    RandomStream random(1, RandomUse::kTest);
    for (PartitionId l = 0; l < partitions; ++l) {
      for (PartitionId r = 0; r < partitions; ++r) {
        WriteBucket({l, r}, edges_per_bucket, &random);
      }
    }
  }

  void WriteBucket(Bucket bucket, int64_t count, RandomStream* random) {
    EdgeList edges;
    for (int64_t i = 0; i < count; ++i) {
      edges.lhs.push_back(static_cast<EntityOffset>(random->Below(kEntities)));
      edges.rhs.push_back(static_cast<EntityOffset>(random->Below(kEntities)));
      edges.rel.push_back(static_cast<RelationTypeId>(random->Below(2)));
      ++expected_[{0, bucket.lhs}][2 * edges.lhs.back()];
      ++expected_[{0, bucket.rhs}][2 * edges.rhs.back() + 1];
    }
    auto writer = EdgeBucketWriter::Create(EdgeBucketPath(dir_.path(), bucket), false);
    ASSERT_THAT(writer, IsOk());
    ASSERT_THAT((*writer)->Append(edges), IsOk());
    ASSERT_THAT((*writer)->Finish(), IsOk());
    lock_options_.edges[bucket] = count;
  }

  absl::StatusOr<TrainingSummary> Train(int threads = 2) {
    if (lock_ == nullptr) MakeLock();
    auto live = MakeSharedState(task_, steps_);
    WEFT_RETURN_IF_ERROR(live.status());
    live_ = *std::move(live);
    TrainingLoop::Options options;
    options.num_threads = threads;
    options.pipeline = pipeline_options_;
    options.acquire_wait = acquire_wait_;
    TrainingLoop loop(task_, options, {lock_.get(), &params_, &partitions_, &steps_, observer_},
                      &live_);
    return loop.Run(stop_);
  }

  // Begins a run.
  void MakeLock() {
    partitions_.Clear();
    lock_ = std::make_unique<FakeLockClient>(task_, lock_options_);
    lock_->partitions = &partitions_;
  }

  // Every entity was counted `passes` times for each of its edges.
  void ExpectEveryEdgeTrained(int passes) {
    const auto partitions = static_cast<PartitionId>(task_.entity_counts[0].size());
    for (PartitionId p = 0; p < partitions; ++p) {
      EmbeddingPartition table;
      if (partitions == 1) {
        table = live_.unpartitioned[0].Clone();
      } else {
        auto stored = partitions_.Get({0, p}, lock_->current({0, p}));
        ASSERT_TRUE(stored.has_value());
        table = *std::move(stored);
      }
      for (int64_t i = 0; i < kEntities; ++i) {
        for (int side = 0; side < 2; ++side) {
          const PartitionKey key{0, p};
          EXPECT_EQ(table.embeddings.row(i)[side],
                    passes * expected_[key][static_cast<EntityOffset>(2 * i + side)])
              << "partition " << p << " entity " << i << " side " << side;
        }
      }
    }
  }

  TempDir dir_;
  TrainingTask task_;
  FakeLockClient::Options lock_options_;
  BucketPipeline::Options pipeline_options_;
  absl::Duration acquire_wait_ = absl::Seconds(10);
  FakePartitionClient partitions_;
  FakeParamClient params_{task_};
  CountingStepFactory steps_;
  std::unique_ptr<FakeLockClient> lock_;
  TrainingObserver* observer_ = nullptr;
  SharedState live_;
  std::atomic<bool> stop_ = false;
  std::map<PartitionKey, std::map<EntityOffset, int>> expected_;  // [2 offset + side]
};

}  // namespace weft::testing
