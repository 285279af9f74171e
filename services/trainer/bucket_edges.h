// BucketEdges are the edges of one bucket (of one edge chunk) as training wants them: the held-out
// ones apart, and, for static relations, grouped by relation.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/feature_bags.h"
#include "services/common/types.h"
#include "services/trainer/packed_edges.h"

namespace weft {

// Edges of which each batch is drawn from one group. Static relations: a group a relation, in
// ascending order. Dynamic relations: one group with all edges.
struct GroupedEdges {
  struct Group {
    RelationTypeId relation = 0;  // 0 for dynamic relations, which a batch mixes
    int64_t begin = 0;
    int64_t end = 0;
    // By side: whether the entities are featurized; their ids are numbers of bags then.
    bool featurized[2] = {false, false};

    int64_t size() const { return end - begin; }
  };

  PackedEdges edges;
  std::vector<Group> groups;  // none is empty
  FeatureBags bags[2];        // by side

  int64_t size() const { return edges.size(); }
  int64_t bytes() const { return edges.bytes() + bags[0].bytes() + bags[1].bytes(); }
};

// Groups in place: no second copy of the edges is made. The order within a group is a function of
// the input's order alone.
GroupedEdges GroupEdges(PackedEdges edges, bool dynamic_relations);

struct BucketEdges {
  GroupedEdges train;
  GroupedEdges held_out;

  int64_t size() const { return train.size() + held_out.size(); }
  int64_t bytes() const { return train.bytes() + held_out.bytes(); }
};

}  // namespace weft
