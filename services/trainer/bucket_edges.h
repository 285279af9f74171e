// BucketEdges are the edges of one bucket (of one edge chunk) as training wants them: the held-out
// ones apart, and, for static relations, grouped by relation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/edge_list.h"
#include "services/common/types.h"

namespace weft {

// Edges of which each batch is drawn from one group. Static relations: a group a relation, in
// ascending order, and `edges.rel` is empty. Dynamic relations: one group with all edges.
struct GroupedEdges {
  struct Group {
    RelationTypeId relation = 0;  // 0 for dynamic relations, which a batch mixes
    int64_t begin = 0;
    int64_t end = 0;

    int64_t size() const { return end - begin; }
  };

  EdgeList edges;
  std::vector<Group> groups;  // none is empty

  int64_t size() const { return edges.size(); }
};

// Groups in place: no second copy of the edges is made. The order within a group is a function of
// the input's order alone.
GroupedEdges GroupEdges(EdgeList edges, bool dynamic_relations);

// Moves the edges at `positions` (ascending, unique) to a list of their own; the others keep their
// order.
EdgeList ExtractEdges(EdgeList* edges, std::span<const int64_t> positions);

struct BucketEdges {
  GroupedEdges train;
  GroupedEdges held_out;

  int64_t size() const { return train.size() + held_out.size(); }
};

}  // namespace weft
