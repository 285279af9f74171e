#include "graph/entity_dictionary.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "services/common/check.h"

namespace weft {
namespace {

constexpr int kInitialLog2Capacity = 10;
constexpr size_t kFirstChunkBytes = size_t{1} << 12;
constexpr size_t kMaxChunkBytes = size_t{1} << 20;
constexpr size_t kHugePageBytes = size_t{1} << 21;

// Linear probing stays short below three quarters.
constexpr int64_t MaxSize(int log2_capacity) { return (int64_t{3} << log2_capacity) / 4; }

constexpr size_t PaddedTo4(size_t bytes) { return (bytes + 3) & ~size_t{3}; }

}  // namespace

EntityDictionary::EntityDictionary(int num_partitions) : arenas_(num_partitions) {
  WEFT_CHECK(num_partitions >= 1);
  AllocateSlots(kInitialLog2Capacity);
}

EntityDictionary::~EntityDictionary() = default;
EntityDictionary::EntityDictionary(EntityDictionary&&) noexcept = default;
EntityDictionary& EntityDictionary::operator=(EntityDictionary&&) noexcept = default;

void EntityDictionary::FreeSlots::operator()(Slot* slots) const { std::free(slots); }

void EntityDictionary::AllocateSlots(int log2_capacity) {
  const size_t capacity = size_t{1} << log2_capacity;
  const size_t bytes = capacity * sizeof(Slot);
  // Look-ups are random: without huge pages most of them miss the TLB too.
  const size_t alignment = bytes >= 2 * kHugePageBytes ? kHugePageBytes : 64;
  void* memory = std::aligned_alloc(alignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == kHugePageBytes) madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  slots_.reset(static_cast<Slot*>(memory));
  mask_ = capacity - 1;
  shift_ = 64 - log2_capacity;
  max_size_ = MaxSize(log2_capacity);
}

void EntityDictionary::Grow() {
  const std::unique_ptr<Slot[], FreeSlots> old = std::move(slots_);
  const size_t old_capacity = mask_ + 1;
  AllocateSlots(64 - shift_ + 1);
  for (size_t i = 0; i < old_capacity; ++i) {
    if (old[i].entry == nullptr) continue;
    size_t slot = HomeSlot(old[i].hash);
    while (slots_[slot].entry != nullptr) slot = (slot + 1) & mask_;
    slots_[slot] = old[i];
  }
}

const EntityDictionary::Entry* EntityDictionary::Append(Arena* arena, std::string_view name) {
  const size_t bytes = PaddedTo4(sizeof(Entry) + name.size());
  if (arena->chunks.empty() || arena->chunks.back().capacity - arena->chunks.back().used < bytes) {
    const size_t wanted = arena->chunks.empty()
                              ? kFirstChunkBytes
                              : std::min(2 * arena->chunks.back().capacity, kMaxChunkBytes);
    const size_t capacity = std::max(wanted, bytes);
    arena->chunks.push_back({std::make_unique_for_overwrite<char[]>(capacity), 0, capacity});
    arena_bytes_ += static_cast<int64_t>(capacity);
  }
  Chunk& chunk = arena->chunks.back();
  auto* entry = new (chunk.bytes.get() + chunk.used)
      Entry{static_cast<EntityOffset>(arena->count), static_cast<uint32_t>(name.size())};
  if (!name.empty()) std::memcpy(entry + 1, name.data(), name.size());
  chunk.used += bytes;
  ++arena->count;
  return entry;
}

inline size_t EntityDictionary::FindSlot(uint64_t hash, std::string_view name) const {
  size_t slot = HomeSlot(hash);
  for (; slots_[slot].entry != nullptr; slot = (slot + 1) & mask_) {
    if (slots_[slot].hash == hash && slots_[slot].entry->name() == name) break;
  }
  return slot;
}

EntityOffset EntityDictionary::Intern(uint64_t hash, std::string_view name) {
  const size_t slot = FindSlot(hash, name);
  if (slots_[slot].entry != nullptr) return slots_[slot].entry->offset;
  return Add(slot, StablePartition(hash, num_partitions()), hash, name);
}

EntityOffset EntityDictionary::InternIn(PartitionId partition, uint64_t hash,
                                        std::string_view name) {
  const size_t slot = FindSlot(hash, name);
  if (slots_[slot].entry != nullptr) return slots_[slot].entry->offset;
  return Add(slot, partition, hash, name);
}

EntityOffset EntityDictionary::Add(size_t slot, PartitionId partition, uint64_t hash,
                                   std::string_view name) {
  Arena& arena = arenas_[partition];
  if (arena.count == std::numeric_limits<EntityOffset>::max()) return kNone;
  const Entry* entry = Append(&arena, name);
  slots_[slot] = {hash, entry};
  if (++size_ > max_size_) Grow();
  return entry->offset;
}

EntityOffset EntityDictionary::Find(uint64_t hash, std::string_view name) const {
  const Entry* const entry = slots_[FindSlot(hash, name)].entry;
  return entry == nullptr ? kNone : entry->offset;
}

void EntityDictionary::PrefetchSlot(uint64_t hash) const {
  __builtin_prefetch(&slots_[HomeSlot(hash)]);
}

void EntityDictionary::PrefetchName(uint64_t hash) const {
  // The home slot is right for most names; for the others the hint is merely useless.
  __builtin_prefetch(slots_[HomeSlot(hash)].entry);
}

int64_t EntityDictionary::MemoryBytes() const {
  return static_cast<int64_t>((mask_ + 1) * sizeof(Slot)) + arena_bytes_;
}

void EntityDictionary::ForEachName(PartitionId partition,
                                   const std::function<void(std::string_view name)>& visit) const {
  for (const Chunk& chunk : arenas_[partition].chunks) {
    for (size_t at = 0; at < chunk.used;) {
      const auto* entry = reinterpret_cast<const Entry*>(chunk.bytes.get() + at);
      visit(entry->name());
      at += PaddedTo4(sizeof(Entry) + entry->length);
    }
  }
}

}  // namespace weft
