#include "graph/import/rare_filter.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "graph/import/feature_groups.h"
#include "graph/stable_partition.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

// How much larger than an even share a partition of features may be before it is worth a warning.
constexpr double kUneven = 1.5;

}  // namespace

RareFilter::RareFilter(const Options& options, const DatasetSchema& schema,
                       const Interner& interned, const ExternalPartitioner& edges, int num_inputs,
                       std::vector<FeatureBags>* bags)
    : options_(options),
      schema_(schema),
      interned_(interned),
      edges_(edges),
      num_inputs_(static_cast<uint32_t>(num_inputs)),
      bags_(*bags) {}

absl::Status RareFilter::Run() {
  WEFT_RETURN_IF_ERROR(CountRelations());
  WEFT_RETURN_IF_ERROR(CountEntities());
  PlaceEntities();
  FillBags();
  return absl::OkStatus();
}

const DatasetSchema::Relation& RareFilter::RelationOf(const EdgeRecord& edge) const {
  return schema_.relations[schema_.dynamic_relations ? 0 : edge.rel];
}

absl::Status RareFilter::CountRelations() {
  std::vector<std::string_view> names;
  if (schema_.dynamic_relations) {
    interned_.relations().ForEachName(0, [&](std::string_view name) { names.push_back(name); });
  } else {
    for (const DatasetSchema::Relation& relation : schema_.relations) {
      names.push_back(relation.name);
    }
  }
  std::vector<int64_t> counts(names.size());
  for (uint32_t input = 0; input < num_inputs_ && options_.relation_min_count > 1; ++input) {
    WEFT_RETURN_IF_ERROR(edges_.Read(input, [&](std::span<const EdgeRecord> piece) {
      for (const EdgeRecord& edge : piece) ++counts[edge.rel];
      return absl::OkStatus();
    }));
  }
  for (size_t old_id = 0; old_id < names.size(); ++old_id) {
    const bool kept =
        options_.relation_min_count <= 1 || counts[old_id] >= options_.relation_min_count;
    if (!kept) ++dropped_relations_;
    const auto next = schema_.dynamic_relations ? relation_names_.size() : old_id;
    new_relation_.push_back(kept ? static_cast<RelationTypeId>(next) : kDropped);
    if (kept || !schema_.dynamic_relations) relation_names_.push_back(names[old_id]);
  }
  return absl::OkStatus();
}

absl::Status RareFilter::CountEntities() {
  for (const EntityDictionary& entities : interned_.entities()) {
    counts_.emplace_back(entities.size());
    order_.emplace_back();
    order_end_.emplace_back();
  }
  for (const FeatureBags& bags : interned_.bags()) {
    bag_is_used_.emplace_back(static_cast<size_t>(bags.size()));
  }
  const auto count_one = [&](EntityTypeId type, uint32_t id) {
    uint32_t& n = counts_[type][id];
    if (n == 0) order_[type].push_back(id);
    if (n < std::numeric_limits<uint32_t>::max()) ++n;
  };
  const auto count = [&](EntityTypeId type, uint32_t id) {
    if (!schema_.entities[type].featurized) return count_one(type, id);
    bag_is_used_[type][id] = true;
    for (const EntityOffset feature : interned_.bags()[type][id]) {
      count_one(type, static_cast<uint32_t>(feature));
    }
  };
  for (uint32_t input = 0; input < num_inputs_; ++input) {
    WEFT_RETURN_IF_ERROR(edges_.Read(input, [&](std::span<const EdgeRecord> piece) {
      for (const EdgeRecord& edge : piece) {
        if (new_relation_[edge.rel] == kDropped) continue;
        count(RelationOf(edge).lhs, edge.lhs);
        count(RelationOf(edge).rhs, edge.rhs);
      }
      return absl::OkStatus();
    }));
    for (size_t type = 0; type < order_.size(); ++type) {
      order_end_[type].push_back(order_[type].size());
    }
  }
  return absl::OkStatus();
}

void RareFilter::PlaceEntities() {
  new_entities_.resize(num_inputs_);
  for (size_t type = 0; type < order_.size(); ++type) {
    std::vector<std::string_view> names;
    interned_.entities()[type].ForEachName(0,
                                           [&](std::string_view name) { names.push_back(name); });
    EntityDictionary kept(schema_.entities[type].num_partitions);
    EntityHasher hasher(schema_.entities[type].name);
    const std::optional<std::vector<PartitionId>> partitions =
        PartitionsOfFeatures(static_cast<EntityTypeId>(type), names);
    locations_.emplace_back(names.size());
    size_t i = 0;
    for (uint32_t input = 0; input < num_inputs_; ++input) {
      for (; i < order_end_[type][input]; ++i) {
        const uint32_t old_id = order_[type][i];
        if (!IsKept(static_cast<EntityTypeId>(type), old_id)) continue;
        const uint64_t hash = hasher(names[old_id]);
        const PartitionId partition = partitions.has_value()
                                          ? (*partitions)[old_id]
                                          : StablePartition(hash, kept.num_partitions());
        locations_[type][old_id] = {partition, kept.InternIn(partition, hash, names[old_id])};
        ++new_entities_[input];
      }
    }
    dropped_entities_ += static_cast<int64_t>(names.size()) - kept.size();
    entities_.push_back(std::move(kept));
    order_[type] = {};
    counts_[type] = {};
  }
}

std::optional<std::vector<PartitionId>> RareFilter::PartitionsOfFeatures(
    EntityTypeId type, const std::vector<std::string_view>& names) {
  const DatasetSchema::EntityType& entity = schema_.entities[type];
  if (!entity.featurized || entity.num_partitions == 1) return std::nullopt;
  const FeatureBags& bags = interned_.bags()[type];
  FeatureGroups groups(names.size());
  std::vector<EntityOffset> left;
  for (int64_t i = 0; i < bags.size(); ++i) {
    if (!bag_is_used_[type][static_cast<size_t>(i)]) continue;
    left.clear();
    for (const EntityOffset feature : bags[i]) {
      if (IsKept(type, static_cast<uint32_t>(feature))) left.push_back(feature);
    }
    groups.Join(left);
  }
  std::vector<uint32_t> kept;
  for (const uint32_t feature : order_[type]) {
    if (IsKept(type, feature)) kept.push_back(feature);
  }
  FeatureGroups::Placement placement = groups.Place(kept, names, entity.num_partitions);
  const double even = static_cast<double>(kept.size()) / entity.num_partitions;
  if (static_cast<double>(placement.largest_partition) > kUneven * even) {
    warnings_.push_back(absl::StrCat(
        "entity type ", entity.name, ": one of its ", entity.num_partitions, " partitions has ",
        placement.largest_partition, " of its ", kept.size(),
        " features; features that entities have together cannot be parted, and ",
        placement.largest_group,
        " hang together. Make its num_partitions 1, or leave features out that bring all others "
        "together (rare ones: --entity-min-count)"));
  }
  return std::move(placement.partitions);
}

void RareFilter::FillBags() {
  std::vector<EntityOffset> left;
  for (size_t type = 0; type < locations_.size(); ++type) {
    const FeatureBags& interned = interned_.bags()[type];
    FeatureBags& bags = bags_.emplace_back();
    for (int64_t i = 0; i < interned.size(); ++i) {
      left.clear();
      for (const EntityOffset feature : interned[i]) {
        const EntityOffset offset = locations_[type][feature].offset;
        if (offset != kDropped) left.push_back(offset);
      }
      bags.Append(left);
    }
  }
}

RareFilter::Location RareFilter::LocationOf(EntityTypeId type, uint32_t id) const {
  if (!schema_.entities[type].featurized) return locations_[type][id];
  const std::span<const EntityOffset> bag = interned_.bags()[type][id];
  for (const EntityOffset feature : bag) {
    // What is left of a bag is all in one partition.
    const Location& location = locations_[type][feature];
    if (location.offset != kDropped) return {location.partition, static_cast<EntityOffset>(id)};
  }
  return {0, bag.empty() ? static_cast<EntityOffset>(id) : kDropped};
}

absl::Status RareFilter::ForEachEdge(int input, const Emit& emit, int64_t* num_dropped) const {
  const auto num_rhs = static_cast<uint32_t>(schema_.NumPartitions(Side::kRhs));
  std::vector<EdgeRecord> left;
  std::vector<uint32_t> buckets;
  return edges_.Read(static_cast<uint32_t>(input), [&](std::span<const EdgeRecord> piece) {
    left.clear();
    buckets.clear();
    for (const EdgeRecord& edge : piece) {
      const DatasetSchema::Relation& relation = RelationOf(edge);
      const RelationTypeId new_relation = new_relation_[edge.rel];
      const Location lhs = LocationOf(relation.lhs, edge.lhs);
      const Location rhs = LocationOf(relation.rhs, edge.rhs);
      if (new_relation == kDropped || lhs.offset == kDropped || rhs.offset == kDropped) {
        ++*num_dropped;
        continue;
      }
      left.push_back({static_cast<uint32_t>(lhs.offset), static_cast<uint32_t>(rhs.offset),
                      static_cast<uint32_t>(new_relation), edge.weight});
      buckets.push_back(static_cast<uint32_t>(lhs.partition) * num_rhs +
                        static_cast<uint32_t>(rhs.partition));
    }
    return emit(left, buckets);
  });
}

}  // namespace weft
