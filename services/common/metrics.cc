#include "services/common/metrics.h"

#include <algorithm>

namespace weft {

void Counter::Add(double amount) {
  double old = value_.load(std::memory_order_relaxed);
  while (!value_.compare_exchange_weak(old, old + amount, std::memory_order_relaxed)) {
  }
}

void Histogram::Observe(double value) {
  const auto at = std::lower_bound(boundaries_.begin(), boundaries_.end(), value);
  ++counts_[static_cast<size_t>(at - boundaries_.begin())];
  sum_ += value;
}

MetricsRegistry::Registration::~Registration() {
  MutexLock lock(&registry_->mu_);
  registry_->sources_.remove(this);
}

std::unique_ptr<MetricsRegistry::Registration> MetricsRegistry::Add(Source source) {
  std::unique_ptr<Registration> registration(new Registration(this, std::move(source)));
  MutexLock lock(&mu_);
  sources_.push_back(registration.get());
  return registration;
}

void MetricsRegistry::Scrape(MetricsPage* page) {
  MutexLock lock(&mu_);
  for (const Registration* registration : sources_) registration->source_(page);
}

}  // namespace weft
