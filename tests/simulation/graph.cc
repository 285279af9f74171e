#include "tests/simulation/graph.h"

namespace weft::simulation {

Graph::Graph(World* world, int num_partitions, int64_t num_rows)
    : partitions(num_partitions), rows(num_rows) {
  int number = 0;
  buckets.resize(static_cast<size_t>(partitions) * static_cast<size_t>(partitions));
  for (std::vector<Edge>& bucket : buckets) {
    const uint32_t edges = world->Below(6);  // some have none
    for (uint32_t i = 0; i < edges; ++i) {
      const auto bound = static_cast<uint32_t>(rows);
      bucket.push_back({static_cast<EntityOffset>(world->Below(bound)),
                        static_cast<EntityOffset>(world->Below(bound)),
                        static_cast<float>(++number)});
    }
  }
  if (number == 0) buckets[0].push_back({0, 0, 1});
}

std::vector<int64_t> Graph::BucketEdges() const {
  std::vector<int64_t> edges;
  for (const auto& bucket : buckets) edges.push_back(static_cast<int64_t>(bucket.size()));
  return edges;
}

int64_t Graph::num_edges() const {
  int64_t edges = 0;
  for (const auto& bucket : buckets) edges += static_cast<int64_t>(bucket.size());
  return edges;
}

void Graph::Train(Bucket bucket, size_t begin, size_t end, EmbeddingPartition* lhs,
                  EmbeddingPartition* rhs) const {
  const auto add = [](EmbeddingPartition* table, EntityOffset row, float number) {
    if (table == nullptr) return;
    table->embeddings.row(row)[0] += 1;
    table->embeddings.row(row)[1] += number;
    table->adagrad_sums.row(row)[0] += 1;
  };
  for (size_t i = begin; i < end; ++i) {
    const Edge& edge = edges(bucket)[i];
    add(lhs, edge.lhs, edge.number);
    add(rhs, edge.rhs, edge.number);
  }
}

EmbeddingPartition Graph::Expected(PartitionId partition, int64_t passes,
                                   const std::vector<Bucket>& done) const {
  EmbeddingPartition table(rows, kDimension);
  const auto train = [&](Bucket b) {
    Train(b, 0, edges(b).size(), b.lhs == partition ? &table : nullptr,
          b.rhs == partition ? &table : nullptr);
  };
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (PartitionId lhs = 0; lhs < partitions; ++lhs) {
      for (PartitionId rhs = 0; rhs < partitions; ++rhs) train({lhs, rhs});
    }
  }
  for (const Bucket& bucket : done) train(bucket);
  return table;
}

}  // namespace weft::simulation
