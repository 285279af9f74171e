#include "cli/best_entities.h"

#include <algorithm>

#include "services/common/status_macros.h"

namespace weft::cli {
namespace {

bool IsBetter(const ScoredEntity& a, const ScoredEntity& b) {
  return a.score != b.score ? a.score > b.score : a.position < b.position;
}

// The best of what was offered, as a heap whose front is the worst of them.
class BestList {
 public:
  explicit BestList(int count) : count_(static_cast<size_t>(count)) {}

  void Offer(const ScoredEntity& entity) {
    if (heap_.size() == count_) {
      if (!IsBetter(entity, heap_.front())) return;
      std::ranges::pop_heap(heap_, IsBetter);
      heap_.pop_back();
    }
    heap_.push_back(entity);
    std::ranges::push_heap(heap_, IsBetter);
  }

  std::vector<ScoredEntity> Take() {
    std::ranges::sort(heap_, IsBetter);
    return std::move(heap_);
  }

 private:
  const size_t count_;
  std::vector<ScoredEntity> heap_;
};

}  // namespace

absl::StatusOr<std::vector<ScoredEntity>> BestEntities(const Checkpoint& checkpoint,
                                                       EntityTypeId type,
                                                       std::span<const float> query,
                                                       const PrepareRows& prepare,
                                                       TileScorer& scorer, int count,
                                                       std::optional<EntityPosition> except) {
  const auto dimension = static_cast<int64_t>(query.size());
  const std::vector<int64_t>& counts = checkpoint.entity_counts()[static_cast<size_t>(type)];
  std::vector<float> tile(static_cast<size_t>(TileScorer::kCandidates * dimension));
  std::vector<float> scores(static_cast<size_t>(TileScorer::kQueries * TileScorer::kCandidates));
  BestList best(count);
  for (PartitionId p = 0; p < static_cast<PartitionId>(counts.size()); ++p) {
    if (counts[static_cast<size_t>(p)] == 0) continue;
    const auto visit = [&](int64_t first, std::span<const float> rows) -> absl::Status {
      const auto total = static_cast<int64_t>(rows.size()) / dimension;
      for (int64_t begin = 0; begin < total; begin += TileScorer::kCandidates) {
        const int64_t n = std::min(TileScorer::kCandidates, total - begin);
        std::copy_n(rows.data() + begin * dimension, n * dimension, tile.data());
        prepare(n, tile.data());
        scorer.SetCandidates(n, tile.data(), dimension);
        scorer.Score(1, query.data(), dimension, scores.data());
        for (int64_t i = 0; i < n; ++i) {
          const EntityPosition position{p, static_cast<EntityOffset>(first + begin + i)};
          if (position != except) best.Offer({position, scores[static_cast<size_t>(i)]});
        }
      }
      return absl::OkStatus();
    };
    WEFT_RETURN_IF_ERROR(checkpoint.VisitEmbeddings({type, p}, visit));
  }
  return best.Take();
}

}  // namespace weft::cli
