// How ranking cuts its work: questions into tiles that are scored together, and the candidates that
// one scoring compares them with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "services/trainer/ranking_queries.h"

namespace weft {

// Up to `tile_size` neighbouring questions of one candidate set.
struct QueryTile {
  CandidateSet candidates;
  int64_t begin = 0;  // questions [begin, end) of RankingQueries
  int64_t end = 0;
  int64_t number = 0;  // counted within the candidate set

  int64_t size() const { return end - begin; }
};

std::vector<QueryTile> MakeQueryTiles(const RankingQueries& queries, int64_t tile_size);

// `wanted` <= `total` different numbers below `total`, ascending: a function of the seed, the
// candidate set and the tile's number.
std::vector<int64_t> SampleCandidates(uint64_t seed, const QueryTile& tile, int64_t wanted,
                                      int64_t total);

// The part of an ascending list that lies in [begin, end).
std::span<const int64_t> Within(std::span<const int64_t> list, int64_t begin, int64_t end);

// The entities that the columns of one tile of scores stand for: a range, or an ascending list.
class Columns {
 public:
  static Columns Range(int64_t first, int64_t count) { return Columns(first, count, nullptr); }
  // Borrows `entities`: ascending and unique.
  static Columns List(std::span<const int64_t> entities) {
    return Columns(0, static_cast<int64_t>(entities.size()), entities.data());
  }

  int64_t count() const { return count_; }
  int64_t entity(int64_t column) const {
    return list_ == nullptr ? first_ + column : list_[column];
  }
  // The column of `entity`; -1 when it is not among them.
  int64_t Find(int64_t entity) const {
    if (list_ == nullptr) {
      const int64_t column = entity - first_;
      return column >= 0 && column < count_ ? column : -1;
    }
    const int64_t* found = std::lower_bound(list_, list_ + count_, entity);
    return found != list_ + count_ && *found == entity ? found - list_ : -1;
  }

 private:
  Columns(int64_t first, int64_t count, const int64_t* list)
      : first_(first), count_(count), list_(list) {}

  int64_t first_;
  int64_t count_;
  const int64_t* list_;
};

}  // namespace weft
