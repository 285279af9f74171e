// EdgeOutput writes the bucket files of all inputs of an import, one input after the other, into
// their staging folders.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/import/bucket_sink.h"

namespace weft {

class EdgeOutput {
 public:
  // `folders`: of every input, for its bucket files; `sink` gives all else.
  EdgeOutput(std::vector<std::string> folders, BucketSink::Options sink);

  // Adds edges of `input`. Inputs come in their order; some may have no edges.
  absl::Status Add(int input, std::span<const EdgeRecord> edges, std::span<const uint32_t> buckets);

  // After the last Add: all files are complete; Publication makes them durable.
  absl::Status Finish();

  // After Finish.
  const BucketSink::Result& result(int input) const { return results_[input]; }

 private:
  // Makes `input` the one that is written; finishes the ones before.
  absl::Status Advance(int input);

  const std::vector<std::string> folders_;
  const BucketSink::Options sink_options_;
  std::unique_ptr<BucketSink> sink_;
  std::vector<BucketSink::Result> results_;  // of the finished inputs
};

}  // namespace weft
