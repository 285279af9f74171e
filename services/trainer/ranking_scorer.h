// RankingScorer scores tiles of questions against tiles of candidates, for ranking.
//
// FusedRankingScorer is the one that every built-in model uses; its scores have equal bits wherever
// a row stands. BatchStepRankingScorer scores through a BatchStep, and so knows operators and
// comparators that somebody brought; ranks are then as reproducible as that step's arithmetic.
//
// Thread-safety: none; one a thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/parameter_set.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/fused/row_transform.h"
#include "services/trainer/model/model_spec.h"
#include "services/trainer/ranking_queries.h"

namespace weft {

class RankingScorer {
 public:
  static constexpr int64_t kQueries = TileScorer::kQueries;
  static constexpr int64_t kCandidates = TileScorer::kCandidates;

  virtual ~RankingScorer() = default;

  // Makes the rows of the questions' own entities ready for Score, in place. `query`: any of them;
  // all have its relation and side. rows: [count, dimension].
  virtual absl::Status MakeReady(const RankingQuery& query, int64_t count, float* rows) = 0;

  // Takes rows of the table, [count <= kCandidates, dimension], as the candidates of the following
  // calls of Score. `query`: any question of their candidate set.
  virtual absl::Status SetCandidates(const RankingQuery& query, int64_t count,
                                     const float* rows) = 0;

  // queries: at most kQueries, of the candidates' set; ready: [queries, dimension]; scores:
  // [kQueries, kCandidates], of which the queries' rows and the candidates' columns are written.
  // Not every implementation refuses scores that are not finite.
  virtual absl::Status Score(std::span<const RankingQuery> queries, const float* ready,
                             float* scores) = 0;
};

// Makes one a thread; called from one thread at a time.
using RankingScorerFactory = std::function<absl::StatusOr<std::unique_ptr<RankingScorer>>()>;

class FusedRankingScorer final : public RankingScorer {
 public:
  // Both must outlive the scorer. Errors come with the first rows: as RowTransform::Make.
  FusedRankingScorer(const ModelSpec& spec, const ParameterSet& parameters)
      : spec_(spec), parameters_(parameters) {}

  absl::Status MakeReady(const RankingQuery& query, int64_t count, float* rows) override;
  absl::Status SetCandidates(const RankingQuery& query, int64_t count, const float* rows) override;
  absl::Status Score(std::span<const RankingQuery> queries, const float* ready,
                     float* scores) override;

 private:
  const ModelSpec& spec_;
  const ParameterSet& parameters_;
  std::map<int64_t, TileScorer> tiles_;  // by dimension
  TileScorer* tile_ = nullptr;           // with the candidates
  int64_t dimension_ = 0;
  std::vector<float> rows_;  // ready candidates
};

class BatchStepRankingScorer final : public RankingScorer {
 public:
  // Steps are made by `factory` for `spec` with other numbers of negatives. All must outlive the
  // scorer.
  static absl::StatusOr<std::unique_ptr<RankingScorer>> Make(const BatchStepFactory& factory,
                                                             const ModelSpec& spec,
                                                             ParameterSet* parameters);

  absl::Status MakeReady(const RankingQuery& query, int64_t count, float* rows) override;
  absl::Status SetCandidates(const RankingQuery& query, int64_t count, const float* rows) override;
  absl::Status Score(std::span<const RankingQuery> queries, const float* ready,
                     float* scores) override;

 private:
  explicit BatchStepRankingScorer(const ModelSpec& spec) : spec_(spec) {}
  absl::Status ScoreRun(std::span<const RankingQuery> queries, const float* ready, float* scores);

  const ModelSpec& spec_;
  std::unique_ptr<BatchStep> steps_[2];  // by the corrupted side
  int64_t num_candidates_ = 0;
  int64_t dimension_ = 0;
  std::vector<float> rows_;  // candidates
  std::vector<float> known_;
  std::vector<float> sums_;  // Adagrad's, which scoring does not touch
};

}  // namespace weft
