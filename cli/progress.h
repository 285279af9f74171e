// ProgressReporter shows how far a long job is: on a terminal a bar with rate and remaining time,
// elsewhere a plain line every few seconds, or nothing.
//
//   ProgressReporter progress({.title = "import", .unit = "edges", .total = 3'000'000});
//   ... progress.Add(1000); ...   // from any thread
//   progress.Finish();            // import: 3,000,000 edges in 1.2 s (2.5 M edges/s)
//
// Drawing happens on a thread of its own, so Add costs one atomic addition.
//
// Thread-safety: all methods may be called from any thread, but Finish and the destructor only when
// nobody calls the others any more.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "services/common/mutex.h"

namespace weft::cli {

enum class ProgressMode {
  kAuto,   // kBar when the output is a terminal, else kLines
  kBar,    // one line, redrawn
  kLines,  // a new line every few seconds
  kOff,
};

// What is shown at one moment.
struct ProgressState {
  std::string title;
  std::string unit;  // plural; empty: a bare number; "bytes" is shown as kB, MB, ...
  int64_t done = 0;
  std::optional<int64_t> total;
  std::string note;  // "epoch 3/30 loss 0.211"
  absl::Duration elapsed;
};

// "import  42% [#####......]  1,260,000/3,000,000 edges  2.5 M edges/s  0:41 left  NOTE", cut to
// `width` columns.
std::string FormatProgressBar(const ProgressState& state, int width);
// "import: 1,260,000/3,000,000 edges (42%), 2.5 M edges/s, 0:41 left, NOTE"
std::string FormatProgressLine(const ProgressState& state);
// "import: 3,000,000 edges in 1.2 s (2.5 M edges/s), NOTE"
std::string FormatProgressSummary(const ProgressState& state);

// 1234567 -> "1,234,567".
std::string FormatCount(int64_t count);
// 1234567.0 -> "1.23 M"; 950 -> "950".
std::string FormatRate(double rate);
// 42795887.0 -> "42.8 MB".
std::string FormatBytes(double bytes);
// 0:41, 12:05, 3:07:00.
std::string FormatElapsed(absl::Duration duration);

class ProgressReporter {
 public:
  struct Options {
    std::string title;
    std::string unit;
    std::optional<int64_t> total;
    ProgressMode mode = ProgressMode::kAuto;
    std::FILE* out = stderr;  // outlives the reporter
    absl::Duration bar_interval = absl::Milliseconds(100);
    absl::Duration line_interval = absl::Seconds(5);
  };

  explicit ProgressReporter(Options options);
  ~ProgressReporter();  // Finish()
  ProgressReporter(const ProgressReporter&) = delete;
  ProgressReporter& operator=(const ProgressReporter&) = delete;

  void Add(int64_t count) { done_.fetch_add(count, std::memory_order_relaxed); }
  void SetDone(int64_t done) { done_.store(done, std::memory_order_relaxed); }
  void SetTotal(std::optional<int64_t> total) ABSL_LOCKS_EXCLUDED(mu_);
  void SetNote(std::string_view note) ABSL_LOCKS_EXCLUDED(mu_);

  // Prints a line that stays, above the bar. In mode kOff too.
  void Print(std::string_view line) ABSL_LOCKS_EXCLUDED(mu_);

  // Removes the bar, prints the summary (not in mode kOff), stops. Further calls do nothing.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_);
  // The same without the summary: the job failed.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mu_);
  void Draw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EraseBar() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Stop(bool summary) ABSL_LOCKS_EXCLUDED(mu_);
  ProgressState State() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after construction.
  const Options options_;
  const ProgressMode mode_;  // never kAuto
  const std::chrono::steady_clock::time_point start_;

  std::atomic<int64_t> done_ = 0;

  Mutex mu_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool bar_drawn_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<int64_t> total_ ABSL_GUARDED_BY(mu_);
  std::string note_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;  // runs Loop unless the mode is kOff
};

}  // namespace weft::cli
