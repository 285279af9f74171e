// Graph is what a simulated run trains: partitions of a few entities, buckets of a few edges, and
// how often each entity's row has been trained if everything was done exactly once.
//
// Training an edge adds to its two rows: 1 to the first value, the edge's number to the second.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/embedding_partition.h"
#include "services/common/types.h"
#include "tests/simulation/world.h"

namespace weft::simulation {

constexpr int64_t kDimension = 2;

struct Graph {
  struct Edge {
    EntityOffset lhs = 0;
    EntityOffset rhs = 0;
    float number = 0;
  };

  Graph(World* world, int num_partitions, int64_t num_rows);

  size_t Index(Bucket b) const {
    return static_cast<size_t>(b.lhs) * static_cast<size_t>(partitions) +
           static_cast<size_t>(b.rhs);
  }
  const std::vector<Edge>& edges(Bucket b) const { return buckets[Index(b)]; }
  std::vector<int64_t> BucketEdges() const;  // [lhs, rhs]
  int64_t num_edges() const;

  // Trains edges [begin, end) of the bucket. The tables may be one.
  void Train(Bucket bucket, size_t begin, size_t end, EmbeddingPartition* lhs,
             EmbeddingPartition* rhs) const;
  // What is in a partition after `passes` whole passes and the buckets of `done`.
  EmbeddingPartition Expected(PartitionId partition, int64_t passes,
                              const std::vector<Bucket>& done) const;

  const int partitions;
  const int64_t rows;  // of each partition
  std::vector<std::vector<Edge>> buckets;
};

}  // namespace weft::simulation
