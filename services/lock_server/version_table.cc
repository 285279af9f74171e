#include "services/lock_server/version_table.h"

#include "services/common/check.h"

namespace weft {

VersionTable::VersionTable(const std::vector<int>& num_partitions) {
  for (const int n : num_partitions) {
    entries_.emplace_back(n > 1 ? static_cast<size_t>(n) : size_t{0});
  }
}

bool VersionTable::Has(PartitionKey key) const {
  return key.entity_type >= 0 && static_cast<size_t>(key.entity_type) < entries_.size() &&
         key.partition >= 0 &&
         static_cast<size_t>(key.partition) < entries_[static_cast<size_t>(key.entity_type)].size();
}

std::vector<PartitionKey> VersionTable::keys() const {
  std::vector<PartitionKey> keys;
  for (size_t type = 0; type < entries_.size(); ++type) {
    for (size_t i = 0; i < entries_[type].size(); ++i) {
      keys.push_back({static_cast<EntityTypeId>(type), static_cast<PartitionId>(i)});
    }
  }
  return keys;
}

void VersionTable::CommitAll() {
  for (auto& partitions : entries_) {
    for (Entry& entry : partitions) entry.committed = entry.current;
  }
}

void VersionTable::SetAll(const std::vector<PartitionVersion>& versions, Token Entry::*field) {
  for (auto& partitions : entries_) {
    for (Entry& entry : partitions) entry.*field = kInitialToken;
  }
  for (const PartitionVersion& version : versions) {
    if (Has(version.key)) At(version.key).*field = version.token;
  }
}

void VersionTable::SetAllCommitted(const std::vector<PartitionVersion>& versions) {
  SetAll(versions, &Entry::committed);
}

void VersionTable::SetAllCurrent(const std::vector<PartitionVersion>& versions) {
  SetAll(versions, &Entry::current);
}

std::vector<PartitionVersion> VersionTable::Roots() const {
  std::vector<PartitionVersion> roots;
  for (const PartitionKey& key : keys()) {
    const Entry& entry = At(key);
    if (entry.current != kInitialToken) roots.push_back({key, entry.current});
    if (entry.committed != kInitialToken && entry.committed != entry.current) {
      roots.push_back({key, entry.committed});
    }
  }
  return roots;
}

const VersionTable::Entry& VersionTable::At(PartitionKey key) const {
  WEFT_CHECK(Has(key));
  return entries_[static_cast<size_t>(key.entity_type)][static_cast<size_t>(key.partition)];
}

VersionTable::Entry& VersionTable::At(PartitionKey key) {
  return const_cast<Entry&>(static_cast<const VersionTable*>(this)->At(key));
}

}  // namespace weft
