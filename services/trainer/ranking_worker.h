// RankingWorker is what one thread scores with: candidates made ready, a scorer, a tile of scores.
//
// Thread-safety: none; one a thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "services/common/float_block.h"
#include "services/trainer/fused/row_transform.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

class RankingWorker {
 public:
  // `spec` must outlive the worker.
  explicit RankingWorker(const ModelSpec& spec) : spec_(&spec) {}

  // Makes rows of `table` ready and the candidates of the following calls of Score: rows [begin,
  // begin + count), count <= TileScorer::kCandidates.
  absl::Status SetCandidates(const RowTransform& transform, const FloatBlock& table, int64_t begin,
                             int64_t count);
  // The same with rows `entities` - `first_entity`.
  absl::Status SetCandidates(const RowTransform& transform, const FloatBlock& table,
                             int64_t first_entity, std::span<const int64_t> entities);

  // Scores `count` <= TileScorer::kQueries ready queries, [count, dimension], against the
  // candidates. The scores are valid until the next call.
  void Score(int64_t count, const float* queries);
  // The scores of query i: one for each candidate.
  const float* scores(int64_t i) const { return scores_.data() + i * TileScorer::kCandidates; }

  std::vector<float> float_scratch;
  std::vector<int64_t> int_scratch;

 private:
  absl::Status UseDimension(int64_t dimension);

  const ModelSpec* spec_;
  std::map<int64_t, TileScorer> scorers_;  // by dimension
  TileScorer* scorer_ = nullptr;           // the one in use
  int64_t dimension_ = 0;                  // and its dimension
  std::vector<float> rows_;                // [kCandidates, dimension]
  std::vector<float> scores_;              // [kQueries, kCandidates]
};

}  // namespace weft
