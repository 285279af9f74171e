// Interner gives out the ids of an import: it takes the blocks in the order of the inputs and turns
// names into offsets within partitions, in order of first appearance (within an edge, left before
// right). Dynamic relations get their ids in the same way.
//
// Thread-safety: none; one thread takes all blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "graph/dataset_manifest.h"
#include "graph/entity_dictionary.h"
#include "graph/import/edge_parser.h"
#include "graph/import/external_partitioner.h"
#include "services/common/types.h"

namespace weft {

class Interner {
 public:
  // `partitioned` false: every type has one partition, whatever the schema says. `schema` must
  // outlive this object.
  Interner(const DatasetSchema& schema, bool partitioned);

  // Appends the edges of a block to `edges`, and the bucket of each (lhs partition * the number of
  // rhs partitions + rhs partition) to `buckets`.
  // Errors: ResourceExhausted: a partition would hold 2^31 entities.
  absl::Status Intern(const EdgeBlock& block, std::vector<EdgeRecord>* edges,
                      std::vector<uint32_t>* buckets);

  const std::vector<EntityDictionary>& entities() const { return entities_; }  // by type
  std::vector<EntityDictionary>& entities() { return entities_; }
  // Dynamic mode: the names in the order of their ids.
  const EntityDictionary& relations() const { return relations_; }

  int64_t num_entities() const;
  int64_t MemoryBytes() const;

 private:
  struct Sides {
    EntityDictionary* lhs;
    EntityDictionary* rhs;
  };

  absl::Status PartitionFull(EntityTypeId type, uint64_t hash) const;

  const DatasetSchema& schema_;
  const uint32_t num_rhs_partitions_;
  std::vector<EntityDictionary> entities_;
  EntityDictionary relations_;
  std::vector<Sides> sides_;  // by relation
};

}  // namespace weft
