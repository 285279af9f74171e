#include "services/trainer/bucket_edges.h"

#include <utility>

namespace weft {

GroupedEdges GroupEdges(PackedEdges edges, bool dynamic_relations) {
  GroupedEdges grouped;
  const int64_t n = edges.size();
  if (n == 0) return grouped;
  if (dynamic_relations || !edges.with_relations()) {
    grouped.groups.push_back({0, 0, n});
    grouped.edges = std::move(edges);
    return grouped;
  }
  std::vector<int64_t> ends;  // by relation: first the number of edges, then where they end
  for (int64_t i = 0; i < n; ++i) {
    const auto r = static_cast<size_t>(edges[i].rel);
    if (r >= ends.size()) ends.resize(r + 1);
    ++ends[r];
  }
  std::vector<int64_t> next(ends.size());
  int64_t begin = 0;
  for (size_t r = 0; r < ends.size(); ++r) {
    next[r] = begin;
    if (ends[r] > 0) {
      grouped.groups.push_back({static_cast<RelationTypeId>(r), begin, begin + ends[r]});
    }
    begin += ends[r];
    ends[r] = begin;
  }
  // Every edge that stands outside its group is swapped to the next free place of its group.
  for (size_t r = 0; r < ends.size(); ++r) {
    while (next[r] < ends[r]) {
      const auto home = static_cast<size_t>(edges[next[r]].rel);
      if (home != r) edges.Swap(next[r], next[home]);
      ++next[home];
    }
  }
  grouped.edges = std::move(edges);
  return grouped;
}

}  // namespace weft
