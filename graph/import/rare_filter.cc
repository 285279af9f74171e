#include "graph/import/rare_filter.h"

#include <limits>

#include "graph/stable_partition.h"
#include "services/common/status_macros.h"

namespace weft {

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
  PlaceFeatures();
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
  const auto count_one = [&](EntityTypeId type, uint32_t id) {
    uint32_t& n = counts_[type][id];
    if (n == 0) order_[type].push_back(id);
    if (n < std::numeric_limits<uint32_t>::max()) ++n;
  };
  const auto count = [&](EntityTypeId type, uint32_t id) {
    if (!schema_.entities[type].featurized) return count_one(type, id);
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
    locations_.emplace_back(names.size());
    size_t i = 0;
    for (uint32_t input = 0; input < num_inputs_; ++input) {
      for (; i < order_end_[type][input]; ++i) {
        const uint32_t old_id = order_[type][i];
        if (counts_[type][old_id] < options_.entity_min_count) continue;
        const uint64_t hash = hasher(names[old_id]);
        locations_[type][old_id] = {StablePartition(hash, kept.num_partitions()),
                                    kept.Intern(hash, names[old_id])};
        ++new_entities_[input];
      }
    }
    dropped_entities_ += static_cast<int64_t>(names.size()) - kept.size();
    entities_.push_back(std::move(kept));
    order_[type] = {};
    counts_[type] = {};
  }
}

void RareFilter::PlaceFeatures() {
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
  const bool lost = bags_[type][id].empty() && !interned_.bags()[type][id].empty();
  return {0, lost ? kDropped : static_cast<EntityOffset>(id)};
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
