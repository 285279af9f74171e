// Metrics of this process, without any type of Prometheus: what counts, and what tells.
//
// Whoever has something to tell registers a source. A source is asked whenever somebody scrapes,
// and writes all that it has on the page: events that it has counted, and what its owner holds at
// that moment. Nothing is kept twice, and nobody is told of changes that nobody looks at.
//
// Names: weft_<service>_<thing>_<unit> in base units, `_total` behind counters, labels from small
// closed sets (docs/metrics.md has them all, and a test compares).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/common/mutex.h"

namespace weft {

// A sum that only grows. Thread-safety: may be called from any thread, without waiting.
class Counter {
 public:
  void Increment() { Add(1); }
  void Add(double amount);  // >= 0
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// A gauge of what is not known is NaN.
inline double OrNan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

// A counter for each of a small closed set of reasons, or the like. `Enum` ends with kCount.
template <typename Enum>
class Counters {
 public:
  static constexpr size_t kSize = static_cast<size_t>(Enum::kCount);
  Counter& operator[](Enum which) { return counters_[static_cast<size_t>(which)]; }
  const Counter& operator[](Enum which) const { return counters_[static_cast<size_t>(which)]; }

 private:
  std::array<Counter, kSize> counters_;
};

// How often values lay where. Not thread-safe: of whoever holds it, under the owner's lock.
class Histogram {
 public:
  // `boundaries`: ascending upper bounds; what is above all of them is counted, too.
  explicit Histogram(std::vector<double> boundaries)
      : boundaries_(std::move(boundaries)), counts_(boundaries_.size() + 1) {}

  void Observe(double value);

  const std::vector<double>& boundaries() const { return boundaries_; }
  // One more than boundaries; of each span alone.
  const std::vector<int64_t>& counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> boundaries_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

struct MetricLabel {
  absl::string_view name;
  absl::string_view value;
};
using MetricLabels = absl::Span<const MetricLabel>;

// What one scrape shows. All samples of a name have the same type, help and names of labels.
class MetricsPage {
 public:
  virtual ~MetricsPage() = default;

  virtual void AddCounter(absl::string_view name, absl::string_view help, MetricLabels labels,
                          double value) = 0;
  virtual void AddGauge(absl::string_view name, absl::string_view help, MetricLabels labels,
                        double value) = 0;
  virtual void AddHistogram(absl::string_view name, absl::string_view help, MetricLabels labels,
                            const Histogram& value) = 0;
};

// The sources of a process. Thread-safety: may be called from any thread, but not by sources.
class MetricsRegistry {
 public:
  // Called on the thread that scrapes; should not hold locks for long.
  using Source = std::function<void(MetricsPage* page)>;

  // A source while this lives; when it is gone, the source is not being asked any more. Must not
  // outlive the registry.
  class Registration {
   public:
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    friend class MetricsRegistry;
    Registration(MetricsRegistry* registry, Source source)
        : registry_(registry), source_(std::move(source)) {}

    MetricsRegistry* const registry_;
    const Source source_;
  };

  [[nodiscard]] std::unique_ptr<Registration> Add(Source source) ABSL_LOCKS_EXCLUDED(mu_);

  // Asks all sources, one after the other.
  void Scrape(MetricsPage* page) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Held while sources are asked, so that none of them goes meanwhile.
  Mutex mu_;
  std::list<Registration*> sources_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
