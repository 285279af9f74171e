#include "services/common/metrics_prometheus.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/common/check.h"

namespace weft {
namespace {

class PrometheusPage : public MetricsPage {
 public:
  void AddCounter(absl::string_view name, absl::string_view help, MetricLabels labels,
                  double value) override {
    Add(name, help, prometheus::MetricType::Counter, labels).counter.value = value;
  }
  void AddGauge(absl::string_view name, absl::string_view help, MetricLabels labels,
                double value) override {
    Add(name, help, prometheus::MetricType::Gauge, labels).gauge.value = value;
  }
  void AddHistogram(absl::string_view name, absl::string_view help, MetricLabels labels,
                    const Histogram& value) override {
    auto& histogram = Add(name, help, prometheus::MetricType::Histogram, labels).histogram;
    for (size_t i = 0; i < value.counts().size(); ++i) {
      histogram.sample_count += static_cast<uint64_t>(value.counts()[i]);
      if (i == value.boundaries().size()) break;  // the serializer adds +Inf
      histogram.bucket.push_back({histogram.sample_count, value.boundaries()[i]});
    }
    histogram.sample_sum = value.sum();
  }

  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  prometheus::ClientMetric& Add(absl::string_view name, absl::string_view help,
                                prometheus::MetricType type, MetricLabels labels) {
    const auto [at, is_new] = index_.try_emplace(name, families_.size());
    if (is_new) families_.push_back({std::string(name), std::string(help), type, {}});
    prometheus::MetricFamily& family = families_[at->second];
    WEFT_CHECK(family.type == type);
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label.reserve(labels.size());
    for (const MetricLabel& label : labels) {
      metric.label.push_back({std::string(label.name), std::string(label.value)});
    }
    return metric;
  }

  std::vector<prometheus::MetricFamily> families_;
  absl::flat_hash_map<std::string, size_t> index_;
};

}  // namespace

std::string PrometheusText(MetricsRegistry* registry) {
  PrometheusPage page;
  registry->Scrape(&page);
  return page.Text();
}

}  // namespace weft
