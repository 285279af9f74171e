#include "graph/import/interner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

// How many edges ahead a slot, and then the name it points to, are fetched into the cache.
constexpr size_t kSlotsAhead = 16;
constexpr size_t kNamesAhead = 8;

constexpr int kLhs = static_cast<int>(EdgeField::kLhs);
constexpr int kRhs = static_cast<int>(EdgeField::kRhs);
constexpr int kRel = static_cast<int>(EdgeField::kRel);

}  // namespace

Interner::Interner(const DatasetSchema& schema, char feature_delimiter, bool partitioned)
    : schema_(schema),
      num_rhs_partitions_(partitioned ? static_cast<uint32_t>(schema.NumPartitions(Side::kRhs))
                                      : 1),
      feature_delimiter_(feature_delimiter),
      bags_(schema.entities.size()),
      relations_(1) {
  for (const DatasetSchema::EntityType& type : schema.entities) {
    entities_.emplace_back(partitioned ? type.num_partitions : 1);
    bag_names_.emplace_back(1);
  }
  for (const DatasetSchema::Relation& relation : schema.relations) {
    const auto names = [&](EntityTypeId type) {
      return schema.entities[type].featurized ? &bag_names_[type] : &entities_[type];
    };
    const auto bags = [&](EntityTypeId type) {
      return schema.entities[type].featurized ? type : kNoBags;
    };
    sides_.push_back(
        {names(relation.lhs), names(relation.rhs), bags(relation.lhs), bags(relation.rhs)});
  }
}

absl::Status Interner::InternBag(EntityTypeId type, EntityOffset bag, std::string_view field) {
  if (bag < bags_[type].size()) return absl::OkStatus();
  EntityHasher hasher(schema_.entities[type].name);
  std::vector<EntityOffset> features;
  while (!field.empty()) {
    const std::string_view name = field.substr(0, field.find(feature_delimiter_));
    field.remove_prefix(std::min(field.size(), name.size() + 1));
    if (name.empty()) continue;
    const uint64_t hash = hasher(name);
    features.push_back(entities_[type].Intern(hash, name));
    if (features.back() == EntityDictionary::kNone) return PartitionFull(type, hash);
  }
  bags_[type].Append(features);
  return absl::OkStatus();
}

absl::Status Interner::Intern(const EdgeBlock& block, std::vector<EdgeRecord>* edges,
                              std::vector<uint32_t>* buckets) {
  const size_t size = block.size();
  const std::string_view* lhs_names = block.lines.fields[kLhs].data();
  const std::string_view* rhs_names = block.lines.fields[kRhs].data();
  const auto sides = [&](size_t i) -> const Sides& { return sides_[block.relation(i)]; };
  edges->reserve(edges->size() + size);
  buckets->reserve(buckets->size() + size);
  for (size_t i = 0; i < std::min(kSlotsAhead, size); ++i) {
    sides(i).lhs->PrefetchSlot(block.lhs_hash[i]);
    sides(i).rhs->PrefetchSlot(block.rhs_hash[i]);
  }
  for (size_t i = 0; i < size; ++i) {
    if (i + kSlotsAhead < size) {
      const size_t ahead = i + kSlotsAhead;
      sides(ahead).lhs->PrefetchSlot(block.lhs_hash[ahead]);
      sides(ahead).rhs->PrefetchSlot(block.rhs_hash[ahead]);
    }
    if (i + kNamesAhead < size) {
      const size_t ahead = i + kNamesAhead;
      sides(ahead).lhs->PrefetchName(block.lhs_hash[ahead]);
      sides(ahead).rhs->PrefetchName(block.rhs_hash[ahead]);
    }
    const auto [lhs_entities, rhs_entities, lhs_bags, rhs_bags] = sides(i);
    const uint64_t lhs_hash = block.lhs_hash[i];
    const uint64_t rhs_hash = block.rhs_hash[i];
    const EntityOffset lhs = lhs_entities->Intern(lhs_hash, lhs_names[i]);
    if (lhs == EntityDictionary::kNone) {
      return PartitionFull(schema_.relations[block.relation(i)].lhs, lhs_hash);
    }
    const EntityOffset rhs = rhs_entities->Intern(rhs_hash, rhs_names[i]);
    if (rhs == EntityDictionary::kNone) {
      return PartitionFull(schema_.relations[block.relation(i)].rhs, rhs_hash);
    }
    if (lhs_bags != kNoBags) WEFT_RETURN_IF_ERROR(InternBag(lhs_bags, lhs, lhs_names[i]));
    if (rhs_bags != kNoBags) WEFT_RETURN_IF_ERROR(InternBag(rhs_bags, rhs, rhs_names[i]));
    RelationTypeId relation = block.relation(i);
    if (!block.rel_hash.empty()) {
      relation = relations_.Intern(block.rel_hash[i], block.lines.fields[kRel][i]);
      if (relation == EntityDictionary::kNone) {
        return absl::ResourceExhaustedError("the input has more than 2^31 - 1 relations");
      }
    }
    edges->push_back({static_cast<uint32_t>(lhs), static_cast<uint32_t>(rhs),
                      static_cast<uint32_t>(relation),
                      block.weight.empty() ? 1.0f : block.weight[i]});
    const PartitionId lhs_partition = StablePartition(lhs_hash, lhs_entities->num_partitions());
    const PartitionId rhs_partition = StablePartition(rhs_hash, rhs_entities->num_partitions());
    buckets->push_back(static_cast<uint32_t>(lhs_partition) * num_rhs_partitions_ +
                       static_cast<uint32_t>(rhs_partition));
  }
  return absl::OkStatus();
}

absl::Status Interner::PartitionFull(EntityTypeId type, uint64_t hash) const {
  const int num_partitions = entities_[type].num_partitions();
  return absl::ResourceExhaustedError(absl::StrCat(
      "partition ", StablePartition(hash, num_partitions), " of entity type ",
      schema_.entities[type].name, " would hold 2^31 entities; give the type more than ",
      num_partitions, " partitions"));
}

int64_t Interner::num_entities() const {
  int64_t sum = 0;
  for (const EntityDictionary& entities : entities_) sum += entities.size();
  return sum;
}

int64_t Interner::MemoryBytes() const {
  int64_t bytes = relations_.MemoryBytes();
  for (const EntityDictionary& entities : entities_) bytes += entities.MemoryBytes();
  for (const EntityDictionary& names : bag_names_) bytes += names.MemoryBytes();
  for (const FeatureBags& bags : bags_) bytes += bags.bytes();
  return bytes;
}

}  // namespace weft
