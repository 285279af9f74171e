// RankEdges scores, for every evaluated edge, all entities that could stand in place of one of its
// ends (or a sample of them), and counts those above and equal to the edge's own.
//
// Ranks are equal, to the last one, whatever the number of partitions, threads or questions held at
// once: every score, the edge's own as well, comes from the same kind of tile (FusedRankingScorer),
// whose bits depend on the two vectors alone.
//
// Memory: tables are read one partition at a time, through PartitionReader; ready queries are
// bounded by RankingOptions::query_bytes; scores exist one tile a thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/float_block.h"
#include "services/common/parameter_set.h"
#include "services/common/types.h"
#include "services/trainer/edge_filter.h"
#include "services/trainer/entity_index.h"
#include "services/trainer/evaluator.h"
#include "services/trainer/model/model_spec.h"
#include "services/trainer/ranking_queries.h"
#include "services/trainer/ranking_scorer.h"

namespace weft {

// Where embeddings come from. Called from one thread.
class PartitionReader {
 public:
  virtual ~PartitionReader() = default;
  // [count, dimension]. The block lives as long as the pointer; a reader may keep what it read.
  virtual absl::StatusOr<std::shared_ptr<const FloatBlock>> Read(PartitionKey key) = 0;
};

struct RankingOptions {
  int num_threads = 1;
  // 0: every entity is a candidate. Else each group of RankingScorer::kQueries questions has a
  // sample of its own of this many different entities, a function of `seed` and the group.
  int64_t sampled_candidates = 0;
  uint64_t seed = 0;
  // How much memory ready queries (and samples) may take at once; at least one tile of them is
  // held. Where they do not fit, tables are read again for each part.
  int64_t query_bytes = int64_t{1} << 30;
  // Makes the threads' scorers; empty: FusedRankingScorer, for which all that is promised above
  // holds.
  RankingScorerFactory make_scorer = {};
  // Told how many scores are counted and how many will be, from the calling thread. May be empty.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

// One entry an edge, in the order in which `queries` was given them. `filter` is finished.
// Errors:
//   InvalidArgument: the model has a comparator or operator that the scorer does not know.
//   FailedPrecondition: `parameters` is not this model's.
//   DataLoss: an embedding, parameter or score is not finite; names it.
//   Whatever `tables` answers.
absl::StatusOr<std::vector<EdgeCounts>> RankEdges(
    const ModelSpec& spec, const ParameterSet& parameters, const EntityIndex& entities,
    PartitionReader* tables, const RankingQueries& queries, const EdgeFilter& filter,
    int64_t num_edges, const RankingOptions& options);

}  // namespace weft
