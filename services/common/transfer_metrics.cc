#include "services/common/transfer_metrics.h"

#include <algorithm>

namespace weft {
namespace {

constexpr absl::string_view kRoles[] = {"lock", "partition", "param", "trainer", "other"};
static_assert(std::size(kRoles) == static_cast<size_t>(PeerRole::kCount));

}  // namespace

PeerRole PeerRoleOf(ServerRole role) {
  switch (role) {
    case ServerRole::kLock:
      return PeerRole::kLock;
    case ServerRole::kPartition:
      return PeerRole::kPartition;
    case ServerRole::kParam:
      return PeerRole::kParam;
    case ServerRole::kTrainer:
      return PeerRole::kTrainer;
  }
  return PeerRole::kOther;
}

absl::string_view PeerRoleName(PeerRole role) { return kRoles[static_cast<size_t>(role)]; }

PeerRole PeerRoleFromName(absl::string_view name) {
  const auto* const found = std::ranges::find(kRoles, name);
  return found == std::end(kRoles) ? PeerRole::kOther
                                   : static_cast<PeerRole>(found - std::begin(kRoles));
}

std::vector<double> TransferMetrics::Boundaries() {
  return {1e6, 3e6, 1e7, 3e7, 1e8, 2e8, 3e8, 5e8, 7e8, 1e9, 1.5e9, 2e9, 3e9};
}

void TransferMetrics::Finished(Direction direction, int64_t bytes, absl::Duration took) {
  const double seconds = std::max(1e-9, absl::ToDoubleSeconds(took));
  MutexLock lock(&mu_);
  rates_[static_cast<size_t>(direction)].Observe(static_cast<double>(bytes) / seconds);
}

void TransferMetrics::Write(MetricsPage* page) const {
  for (size_t i = 0; i < std::size(kRoles); ++i) {
    const auto role = static_cast<PeerRole>(i);
    page->AddCounter("weft_transfer_received_bytes_total",
                     "Bytes of blobs and rows received, by role of the peer.",
                     {{"role", kRoles[i]}}, received_[role].value());
    page->AddCounter("weft_transfer_sent_bytes_total",
                     "Bytes of blobs and rows sent, by role of the peer.", {{"role", kRoles[i]}},
                     sent_[role].value());
  }
  MutexLock lock(&mu_);
  const auto rate = [&](absl::string_view direction, const Histogram& rates) {
    page->AddHistogram("weft_transfer_rate_bytes_per_second",
                       "Speed of each transfer of a blob that this process asked for.",
                       {{"direction", direction}}, rates);
  };
  rate("received", rates_[static_cast<size_t>(Direction::kReceived)]);
  rate("sent", rates_[static_cast<size_t>(Direction::kSent)]);
}

}  // namespace weft
