// RunCounters is what a run has counted since its life in this process began: calls refused, grants
// and how they ended, edges committed and how fast, checkpoints.
//
// Not thread-safe: belongs to the run's lock. Knows no rule of the run.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "services/common/clock.h"
#include "services/common/metrics.h"
#include "services/common/run_stats.h"
#include "services/common/types.h"

namespace weft {

// Why a call was refused; nothing was changed by it.
enum class CallRefusal : uint8_t {
  kWrongRun,
  kOldGeneration,
  kSessionEnded,
  kGrantEnded,  // or it is another's
  kStaleBase,   // its versions are not current any more
  kMalformed,   // buckets, partitions, shards or numbers that cannot be
  kNotStored,   // not at enough places that are there
  kWrongEdges,  // they do not add up; the run fails
  kOtherVersion,
  kRunFailed,
  kCount,
};

enum class SessionEnd : uint8_t { kLeft, kSilent, kStalled, kRefused, kRewound, kCount };
inline constexpr absl::string_view kSessionEnds[] = {"left", "silent", "stalled", "refused",
                                                     "rewound"};
static_assert(std::size(kSessionEnds) == static_cast<size_t>(SessionEnd::kCount));

enum class GrantEnd : uint8_t {
  kReleased,
  kGivenBack,
  kUnknown,  // its trainer never heard of it
  kExpired,  // with its session
  kRefused,
  kFailed,
  kRewound,
  kCount,
};
inline constexpr absl::string_view kGrantEnds[] = {"released", "given_back", "unknown", "expired",
                                                   "refused",  "failed",     "rewound"};
static_assert(std::size(kGrantEnds) == static_cast<size_t>(GrantEnd::kCount));

// Averages over the edges of a pass.
class PassTotals {
 public:
  void Add(const BucketStats& bucket);

  int64_t edges() const { return edges_; }
  // None before there is a bucket that has it.
  std::optional<double> loss() const { return train_.Average().Find("loss"); }
  std::optional<double> mrr_before() const { return eval_before_.Average().Find("mrr"); }
  std::optional<double> mrr_after() const { return eval_after_.Average().Find("mrr"); }

 private:
  int64_t edges_ = 0;
  StatsAverage train_;
  StatsAverage eval_before_;
  StatsAverage eval_after_;
};

// How fast edges are committed, over the last minutes, or the last buckets when those took longer.
class CommitRate {
 public:
  // From here on time counts. Repeats do nothing.
  void Begin(SteadyTime now);
  void Add(int64_t edges, SteadyTime now);
  std::optional<double> PerSecond(SteadyTime now) const;

 private:
  std::deque<std::pair<SteadyTime, int64_t>> commits_;  // the first one's edges do not count
  int64_t edges_ = 0;                                   // of all but the first
};

class RunCounters {
 public:
  explicit RunCounters(SteadyTime now);

  void GrantMade(Token token, SteadyTime now);
  // `buckets`: how many it had.
  void GrantEnded(Token token, size_t buckets, GrantEnd why, SteadyTime now);
  void Committed(const BucketStats& bucket, SteadyTime now);
  void ManifestBegan(Token token, SteadyTime now) { manifests_[token] = now; }
  void ManifestCommitted(Token token, SteadyTime now);
  void Rewound();

  // When it was made, or the beginning, if it is older.
  SteadyTime MadeAt(Token token) const;

  std::array<int64_t, static_cast<size_t>(CallRefusal::kCount)> refused{};
  std::array<int64_t, static_cast<size_t>(SessionEnd::kCount)> sessions_ended{};
  std::array<int64_t, static_cast<size_t>(GrantEnd::kCount)> grants_ended{};
  int64_t grants = 0;
  int64_t requeued_buckets = 0;
  int64_t repeated_acquires = 0;
  int64_t repeated_releases = 0;
  int64_t trained_edges = 0;
  int64_t held_out_edges = 0;
  int64_t rewinds = 0;
  CommitRate rate;
  Histogram grant_seconds;
  Histogram checkpoint_seconds;
  SteadyTime last_commit;  // of a manifest; the beginning, before the first

 private:
  SteadyTime begin_;
  absl::flat_hash_map<Token, SteadyTime> made_;
  absl::flat_hash_map<Token, SteadyTime> manifests_;  // pending ones
};

}  // namespace weft
