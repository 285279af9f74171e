#include "services/trainer/ranking_tiles.h"

#include "absl/container/flat_hash_set.h"
#include "services/common/random.h"

namespace weft {

std::vector<QueryTile> MakeQueryTiles(const RankingQueries& queries, int64_t tile_size) {
  std::vector<QueryTile> tiles;
  const auto num_queries = static_cast<int64_t>(queries.queries().size());
  for (int64_t i = 0; i < num_queries; ++i) {
    const CandidateSet& set = queries.queries()[i].candidates;
    if (tiles.empty() || tiles.back().candidates != set) {
      tiles.push_back({set, i, i, 0});
    } else if (tiles.back().size() == tile_size) {
      tiles.push_back({set, i, i, tiles.back().number + 1});
    }
    ++tiles.back().end;
  }
  return tiles;
}

std::vector<int64_t> SampleCandidates(uint64_t seed, const QueryTile& tile, int64_t wanted,
                                      int64_t total) {
  const uint64_t set = (static_cast<uint64_t>(static_cast<uint32_t>(tile.candidates.type)) << 32) |
                       static_cast<uint32_t>(tile.candidates.operator_relation);
  RandomStream random(seed, RandomUse::kEvalCandidates, set, static_cast<uint64_t>(tile.number));
  absl::flat_hash_set<int64_t> chosen;  // Floyd's algorithm
  chosen.reserve(wanted);
  for (int64_t last = total - wanted; last < total; ++last) {
    const auto drawn = static_cast<int64_t>(random.Below64(static_cast<uint64_t>(last) + 1));
    if (!chosen.insert(drawn).second) chosen.insert(last);
  }
  std::vector<int64_t> sample(chosen.begin(), chosen.end());
  std::sort(sample.begin(), sample.end());
  return sample;
}

std::span<const int64_t> Within(std::span<const int64_t> list, int64_t begin, int64_t end) {
  const auto from = std::lower_bound(list.begin(), list.end(), begin);
  const auto to = std::lower_bound(from, list.end(), end);
  return {from, to};
}

}  // namespace weft
