// CheckpointTables gives ranking the tables of a checkpoint.
//
// Tables that take no more than `cache_bytes` together are read once and kept. Beyond that, the
// ones read longest ago are let go; the last one read is always kept.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "cli/checkpoint_loader.h"
#include "services/common/float_block.h"
#include "services/common/types.h"
#include "services/trainer/ranking.h"

namespace weft::cli {

class CheckpointTables final : public PartitionReader {
 public:
  // `checkpoint` must outlive the tables.
  CheckpointTables(const Checkpoint& checkpoint, int64_t cache_bytes)
      : checkpoint_(checkpoint), cache_bytes_(cache_bytes) {}

  absl::StatusOr<std::shared_ptr<const FloatBlock>> Read(PartitionKey key) override;

 private:
  const Checkpoint& checkpoint_;
  const int64_t cache_bytes_;
  std::deque<std::pair<PartitionKey, std::shared_ptr<const FloatBlock>>> kept_;  // oldest first
  int64_t kept_bytes_ = 0;
};

}  // namespace weft::cli
