// Interner gives out the ids of an import: it takes the blocks in the order of the inputs and turns
// names into offsets within partitions, in order of first appearance (within an edge, left before
// right). Dynamic relations get their ids in the same way.
//
// Of a featurized type, the field names an entity by its features, `a,b,c`: each distinct field is
// a bag, whose number is what the edges get, and the features are what gets offsets. Empty features
// are passed over.
//
// Thread-safety: none; one thread takes all blocks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "graph/dataset_manifest.h"
#include "graph/entity_dictionary.h"
#include "graph/import/edge_parser.h"
#include "graph/import/external_partitioner.h"
#include "services/common/feature_bags.h"
#include "services/common/types.h"

namespace weft {

class Interner {
 public:
  // `partitioned` false: every type has one partition, whatever the schema says. `schema` must
  // outlive this object.
  Interner(const DatasetSchema& schema, char feature_delimiter, bool partitioned);

  // Appends the edges of a block to `edges`, and the bucket of each (lhs partition * the number of
  // rhs partitions + rhs partition) to `buckets`.
  // Errors: ResourceExhausted: a partition would hold 2^31 entities.
  absl::Status Intern(const EdgeBlock& block, std::vector<EdgeRecord>* edges,
                      std::vector<uint32_t>* buckets);

  // By type; of a featurized one, its features.
  const std::vector<EntityDictionary>& entities() const { return entities_; }
  std::vector<EntityDictionary>& entities() { return entities_; }
  // By type: the features of each bag; none of a type that is not featurized.
  const std::vector<FeatureBags>& bags() const { return bags_; }
  // Dynamic mode: the names in the order of their ids.
  const EntityDictionary& relations() const { return relations_; }

  int64_t num_entities() const;
  int64_t MemoryBytes() const;

 private:
  // Where a relation's entities get their ids.
  struct Sides {
    EntityDictionary* lhs;
    EntityDictionary* rhs;
    EntityTypeId lhs_bags;  // the featurized type, or kNoBags
    EntityTypeId rhs_bags;
  };
  static constexpr EntityTypeId kNoBags = -1;

  // Makes bag `bag` of `type` known, if it is new.
  absl::Status InternBag(EntityTypeId type, EntityOffset bag, std::string_view field);
  absl::Status PartitionFull(EntityTypeId type, uint64_t hash) const;

  const DatasetSchema& schema_;
  const uint32_t num_rhs_partitions_;
  const char feature_delimiter_;
  std::vector<EntityDictionary> entities_;
  std::vector<EntityDictionary> bag_names_;  // by type: the fields
  std::vector<FeatureBags> bags_;
  EntityDictionary relations_;
  std::vector<Sides> sides_;  // by relation
};

}  // namespace weft
