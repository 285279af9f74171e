// RareFilter drops rare relations and then rare entities from edges that were interned without
// regard to partitions, and gives the rest the ids they would have had without the dropped ones.
//
// A relation is kept when at least `relation_min_count` edges have it; an entity, when it appears
// at least `entity_min_count` times (on either side) on edges of kept relations. So an entity that
// only rare relations would bring is not created. An edge goes when its relation or one of its
// entities goes. Static relations keep their ids: the configuration lists them.
//
// Of a featurized type, what is counted and dropped are features, each as often as the entities of
// edges have it. An entity goes when it has lost all of its features. Of a type with several
// partitions, what an entity on kept relations has left of its features comes into one partition
// (FeatureGroups); an entity that never had any is in partition 0.
//
// Memory: 40 bytes an entity; 36 more a feature of a type with several partitions.
// Thread-safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dataset_manifest.h"
#include "graph/entity_dictionary.h"
#include "graph/import/external_partitioner.h"
#include "graph/import/interner.h"
#include "services/common/types.h"

namespace weft {

class RareFilter {
 public:
  struct Options {
    int64_t entity_min_count = 0;
    int64_t relation_min_count = 0;
  };

  // `interned`: by an Interner that is not partitioned. `edges`: one group an input. `bags`: for
  // Run to fill, by type: the features that are left of each bag, by their new ids. All of them,
  // and `schema`, must outlive this object.
  RareFilter(const Options& options, const DatasetSchema& schema, const Interner& interned,
             const ExternalPartitioner& edges, int num_inputs, std::vector<FeatureBags>* bags);

  // Counts and decides. Before everything below.
  absl::Status Run();

  const std::vector<EntityDictionary>& entities() const { return entities_; }
  std::vector<EntityDictionary>& entities() { return entities_; }
  // The relations that are left, by new id (static: all of them).
  const std::vector<std::string_view>& relation_names() const { return relation_names_; }
  int64_t dropped_relations() const { return dropped_relations_; }
  int64_t dropped_entities() const { return dropped_entities_; }
  // About featurized types that cannot be cut into even partitions.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Entities that appear in no earlier input.
  int64_t new_entities(int input) const { return new_entities_[input]; }

  // Passes the edges of an input that are left on, with their new ids and buckets, and counts the
  // others.
  using Emit =
      std::function<absl::Status(std::span<const EdgeRecord>, std::span<const uint32_t> buckets)>;
  absl::Status ForEachEdge(int input, const Emit& emit, int64_t* num_dropped) const;

 private:
  static constexpr EntityOffset kDropped = -1;
  struct Location {
    PartitionId partition = 0;
    EntityOffset offset = kDropped;
  };

  absl::Status CountRelations();
  absl::Status CountEntities();
  void PlaceEntities();
  // Partitions by old id, when they are not those of the names' hashes.
  std::optional<std::vector<PartitionId>> PartitionsOfFeatures(
      EntityTypeId type, const std::vector<std::string_view>& names);
  void FillBags();
  bool IsKept(EntityTypeId type, uint32_t id) const {
    return counts_[type][id] >= std::max<int64_t>(1, options_.entity_min_count);
  }
  const DatasetSchema::Relation& RelationOf(const EdgeRecord& edge) const;
  Location LocationOf(EntityTypeId type, uint32_t id) const;

  const Options options_;
  const DatasetSchema& schema_;
  const Interner& interned_;
  const ExternalPartitioner& edges_;
  const uint32_t num_inputs_;
  std::vector<FeatureBags>& bags_;

  std::vector<RelationTypeId> new_relation_;  // by old id; kDropped
  std::vector<std::string_view> relation_names_;
  int64_t dropped_relations_ = 0;

  // By type.
  std::vector<std::vector<uint32_t>> counts_;     // by old id, saturating
  std::vector<std::vector<bool>> bag_is_used_;    // by old id, on kept relations
  std::vector<std::vector<uint32_t>> order_;      // old ids by first appearance on kept relations
  std::vector<std::vector<size_t>> order_end_;    // of every input, within order_
  std::vector<std::vector<Location>> locations_;  // by old id
  std::vector<EntityDictionary> entities_;
  std::vector<int64_t> new_entities_;  // by input
  int64_t dropped_entities_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace weft
