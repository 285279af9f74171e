// A page of metrics that tests look at: "name{label=value,...}" -> value. A histogram is its
// name_count and name_sum.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/common/metrics.h"

namespace weft::testing {

class RecordedMetrics : public MetricsPage {
 public:
  using Values = std::map<std::string, double>;

  void AddCounter(absl::string_view name, absl::string_view, MetricLabels labels,
                  double value) override {
    Add(name, labels, value);
  }
  void AddGauge(absl::string_view name, absl::string_view, MetricLabels labels,
                double value) override {
    Add(name, labels, value);
  }
  void AddHistogram(absl::string_view name, absl::string_view, MetricLabels labels,
                    const Histogram& value) override {
    const int64_t count = std::accumulate(value.counts().begin(), value.counts().end(), int64_t{0});
    Add(absl::StrCat(name, "_count"), labels, static_cast<double>(count));
    Add(absl::StrCat(name, "_sum"), labels, value.sum());
  }

  const Values& values() const { return values_; }
  bool Has(const std::string& sample) const { return values_.contains(sample); }
  // Fails the test when there is no such sample.
  double Value(const std::string& sample) const {
    const auto found = values_.find(sample);
    EXPECT_NE(found, values_.end()) << sample;
    return found == values_.end() ? -1 : found->second;
  }

 private:
  void Add(absl::string_view name, MetricLabels labels, double value) {
    std::string sample(name);
    const char* before = "{";
    for (const MetricLabel& label : labels) {
      absl::StrAppend(&sample, before, label.name, "=", label.value);
      before = ",";
    }
    if (!labels.empty()) sample += "}";
    EXPECT_TRUE(values_.emplace(sample, value).second) << sample << " is there twice";
  }

  Values values_;
};

}  // namespace weft::testing
