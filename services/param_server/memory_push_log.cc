#include "services/param_server/memory_push_log.h"

#include <algorithm>
#include <utility>

#include "services/common/status_macros.h"

namespace weft {
namespace {

template <typename Map, typename Changes>
void Apply(const Changes& changes, Map* contents) {
  for (const auto& change : changes) {
    if (change.remove) {
      contents->erase(change.key);
    } else {
      (*contents)[change.key] = std::string(change.value);
    }
  }
}

}  // namespace

absl::Status MemoryPushLog::Write(absl::Span<const Change> changes) {
  MutexLock lock(&mu_);
  Apply(changes, &contents_);
  if (!keep_unsynced_) return absl::OkStatus();
  std::vector<StoredChange>& batch = unsynced_.emplace_back();
  for (const Change& c : changes) batch.push_back({c.key, std::string(c.value), c.remove});
  return absl::OkStatus();
}

absl::Status MemoryPushLog::Sync() {
  MutexLock lock(&mu_);
  for (const auto& batch : unsynced_) Apply(batch, &synced_);
  unsynced_.clear();
  return absl::OkStatus();
}

absl::Status MemoryPushLog::RemoveAll(std::string_view prefix) {
  std::vector<Change> changes;
  WEFT_RETURN_IF_ERROR(Scan(prefix, [&](std::string_view key, std::string_view) {
    changes.push_back({std::string(key), {}, true});
    return absl::OkStatus();
  }));
  return Write(changes);
}

absl::Status MemoryPushLog::Scan(std::string_view prefix, Visit visit) {
  Contents found;  // the visitor may write
  {
    MutexLock lock(&mu_);
    for (auto it = contents_.lower_bound(prefix);
         it != contents_.end() && std::string_view(it->first).substr(0, prefix.size()) == prefix;
         ++it) {
      found.insert(*it);
    }
  }
  for (const auto& [key, value] : found) WEFT_RETURN_IF_ERROR(visit(key, value));
  return absl::OkStatus();
}

void MemoryPushLog::Crash(size_t surviving) {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < std::min(surviving, unsynced_.size()); ++i) Apply(unsynced_[i], &synced_);
  contents_ = synced_;
  unsynced_.clear();
}

size_t MemoryPushLog::num_unsynced() const {
  MutexLock lock(&mu_);
  return unsynced_.size();
}

}  // namespace weft
