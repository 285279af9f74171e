// VersionTable says which version of each partition is current, and which ones the last committed
// checkpoint is made of.
//
// Entity types with one partition are shared, not versioned here. Not thread-safe.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "services/common/types.h"
#include "services/lock_server/lock_client.h"

namespace weft {

class VersionTable {
 public:
  VersionTable() = default;
  // `num_partitions`: by entity type id. All partitions are initial.
  explicit VersionTable(const std::vector<int>& num_partitions);

  bool Has(PartitionKey key) const;
  // Partitions in the table, by type, then partition.
  std::vector<PartitionKey> keys() const;

  Token current(PartitionKey key) const { return At(key).current; }
  Token committed(PartitionKey key) const { return At(key).committed; }
  bool IsDirty(PartitionKey key) const { return At(key).current != At(key).committed; }

  void SetCurrent(PartitionKey key, Token token) { At(key).current = token; }
  void SetCommitted(PartitionKey key, Token token) { At(key).committed = token; }
  // A checkpoint of all current versions was committed.
  void CommitAll();
  // Partitions that are not in `versions` are initial; what is no partition of the table is
  // skipped.
  void SetAllCommitted(const std::vector<PartitionVersion>& versions);
  void SetAllCurrent(const std::vector<PartitionVersion>& versions);

  // Every version that is current or committed, but for initial ones.
  std::vector<PartitionVersion> Roots() const;

 private:
  struct Entry {
    Token current = kInitialToken;
    Token committed = kInitialToken;
  };
  void SetAll(const std::vector<PartitionVersion>& versions, Token Entry::*field);
  const Entry& At(PartitionKey key) const;
  Entry& At(PartitionKey key);

  std::vector<std::vector<Entry>> entries_;  // [entity type][partition]; empty for one partition
};

}  // namespace weft
