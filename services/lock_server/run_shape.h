// RunShape is what cannot change while a run lives: the shapes of its tables and parameters, and
// which rows mean what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct RunShape {
  struct EntityType {
    std::string name;
    int64_t dimension = 0;
    std::vector<int64_t> counts;  // entities by partition; empty: not known
    int num_partitions = 1;
    bool operator==(const EntityType&) const = default;
  };
  struct Relation {
    std::string name;
    std::string lhs;
    std::string rhs;
    std::string operator_name;
    bool operator==(const Relation&) const = default;
  };

  std::vector<EntityType> entity_types;  // by entity type id
  std::vector<Relation> relations;
  bool dynamic_relations = false;
  int64_t num_dynamic_relations = 0;  // 0: static, or not known
  bool global_embeddings = false;
  uint64_t entities_digest = 0;  // of the entities' names, in order; 0: not known

  bool operator==(const RunShape&) const = default;
};

// What differs, one line each with both values; empty when nothing does. What is not known on one
// side does not differ.
std::vector<std::string> DescribeChanges(const RunShape& was, const RunShape& now);

}  // namespace weft
