#include "graph/import/edge_output.h"

#include <utility>

#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft {

EdgeOutput::EdgeOutput(std::vector<std::string> folders, BucketSink::Options sink)
    : folders_(std::move(folders)), sink_options_(std::move(sink)) {}

absl::Status EdgeOutput::Advance(int input) {
  WEFT_CHECK(static_cast<size_t>(input) >= results_.size());
  while (static_cast<size_t>(input) > results_.size() ||
         (sink_ == nullptr && results_.size() < folders_.size())) {
    if (sink_ != nullptr) {
      WEFT_ASSIGN_OR_RETURN(results_.emplace_back(), sink_->Finish());
      sink_ = nullptr;
      continue;
    }
    BucketSink::Options options = sink_options_;
    options.folder = folders_[results_.size()];
    sink_ = BucketSink::Create(options);
  }
  return absl::OkStatus();
}

absl::Status EdgeOutput::Add(int input, std::span<const EdgeRecord> edges,
                             std::span<const uint32_t> buckets) {
  WEFT_RETURN_IF_ERROR(Advance(input));
  return sink_->Add(edges, buckets);
}

absl::Status EdgeOutput::Finish() { return Advance(static_cast<int>(folders_.size())); }

}  // namespace weft
