#include "cli/checkpoint_tables.h"

#include "services/common/status_macros.h"

namespace weft::cli {
namespace {

int64_t Bytes(const FloatBlock& block) {
  return block.size() * static_cast<int64_t>(sizeof(float));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const FloatBlock>> CheckpointTables::Read(PartitionKey key) {
  for (const auto& [kept, table] : kept_) {
    if (kept == key) return table;
  }
  int64_t wanted = checkpoint_.entity_counts()[key.entity_type][key.partition] *
                   checkpoint_.config().EntityDimension(key.entity_type) *
                   static_cast<int64_t>(sizeof(float));
  while (!kept_.empty() && kept_bytes_ + wanted > cache_bytes_) {
    kept_bytes_ -= Bytes(*kept_.front().second);
    kept_.pop_front();
  }
  WEFT_ASSIGN_OR_RETURN(FloatBlock block, checkpoint_.ReadEmbeddings(key));
  auto table = std::make_shared<const FloatBlock>(std::move(block));
  kept_bytes_ += Bytes(*table);
  kept_.emplace_back(key, table);
  return table;
}

}  // namespace weft::cli
