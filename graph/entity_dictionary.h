// EntityDictionary maps the names of one entity type to offsets within their partitions.
//
// A name gets the next free offset of its partition when it is first interned, so offsets are in
// order of first appearance. Names are kept in arenas, one a partition, in offset order; the index
// is an open-addressing table of (hash, pointer to the name), so a hit touches two cache lines,
// both of which can be prefetched by hash.
//
// The caller brings the hash: one hash of a name (EntityHasher) decides its partition and its slot.
// Names that share all 64 bits of it are still told apart by comparing bytes.
//
// Memory: 23 to 46 bytes an entity for the table, 8 bytes and the padded name in the arena; while
// the table doubles, half as much again.
// Thread-safety: const methods may run at the same time; Intern may not run beside anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "graph/stable_partition.h"
#include "services/common/types.h"

namespace weft {

class EntityDictionary {
 public:
  // A partition that would hold 2^31 entities: what Intern answers instead of an offset. Also what
  // Find answers for an unknown name.
  static constexpr EntityOffset kNone = -1;

  // `num_partitions` >= 1.
  explicit EntityDictionary(int num_partitions);
  ~EntityDictionary();
  EntityDictionary(EntityDictionary&&) noexcept;
  EntityDictionary& operator=(EntityDictionary&&) noexcept;

  // The offset of `name` in partition StablePartition(hash, num_partitions()), a new one when the
  // name is new. Names are shorter than 2^32 bytes.
  EntityOffset Intern(uint64_t hash, std::string_view name);
  // The same in a partition of the caller's choice.
  EntityOffset InternIn(PartitionId partition, uint64_t hash, std::string_view name);
  EntityOffset Find(uint64_t hash, std::string_view name) const;

  // Hints that a look-up of `hash` follows: first of its slot, then (when that has arrived) of the
  // name it points to.
  void PrefetchSlot(uint64_t hash) const;
  void PrefetchName(uint64_t hash) const;

  int num_partitions() const { return static_cast<int>(arenas_.size()); }
  int64_t size() const { return size_; }
  int64_t size(PartitionId partition) const { return arenas_[partition].count; }
  int64_t MemoryBytes() const;

  // Calls `visit` with every name of a partition, in offset order. The views live as long as the
  // dictionary.
  void ForEachName(PartitionId partition,
                   const std::function<void(std::string_view name)>& visit) const;

 private:
  // Followed by the bytes of the name; aligned to 4 bytes.
  struct Entry {
    EntityOffset offset;
    uint32_t length;
    std::string_view name() const { return {reinterpret_cast<const char*>(this + 1), length}; }
  };
  struct Slot {
    uint64_t hash;
    const Entry* entry;  // null: free
  };
  struct Chunk {
    std::unique_ptr<char[]> bytes;
    size_t used;
    size_t capacity;
  };
  struct Arena {
    std::vector<Chunk> chunks;
    int64_t count = 0;
  };
  struct FreeSlots {
    void operator()(Slot* slots) const;
  };

  // The free slot for a new name, or the one that has it.
  size_t FindSlot(uint64_t hash, std::string_view name) const;
  EntityOffset Add(size_t slot, PartitionId partition, uint64_t hash, std::string_view name);
  size_t HomeSlot(uint64_t hash) const { return hash >> shift_; }
  const Entry* Append(Arena* arena, std::string_view name);
  void AllocateSlots(int log2_capacity);
  void Grow();

  std::vector<Arena> arenas_;
  // Power-of-two table, linear probing from the top bits of the hash: growing keeps the order of
  // the slots, so it reads and writes in sequence.
  std::unique_ptr<Slot[], FreeSlots> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
  int64_t size_ = 0;
  int64_t max_size_ = 0;
  int64_t arena_bytes_ = 0;
};

}  // namespace weft
