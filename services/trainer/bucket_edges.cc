#include "services/trainer/bucket_edges.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

template <typename T>
void ExtractColumn(std::vector<T>* column, std::span<const int64_t> positions,
                   std::vector<T>* extracted) {
  if (column->empty() || positions.empty()) return;
  extracted->reserve(positions.size());
  auto to = static_cast<size_t>(positions.front());
  for (size_t k = 0; k < positions.size(); ++k) {
    const auto from = static_cast<size_t>(positions[k]);
    extracted->push_back((*column)[from]);
    const size_t next =
        k + 1 < positions.size() ? static_cast<size_t>(positions[k + 1]) : column->size();
    std::copy(column->begin() + from + 1, column->begin() + next, column->begin() + to);
    to += next - from - 1;
  }
  column->resize(to);
}

void SwapEdges(EdgeList* edges, size_t a, size_t b) {
  std::swap(edges->lhs[a], edges->lhs[b]);
  std::swap(edges->rhs[a], edges->rhs[b]);
  std::swap(edges->rel[a], edges->rel[b]);
  if (edges->weighted()) std::swap(edges->weight[a], edges->weight[b]);
}

}  // namespace

GroupedEdges GroupEdges(EdgeList edges, bool dynamic_relations) {
  GroupedEdges grouped;
  if (edges.size() == 0) return grouped;
  if (dynamic_relations) {
    grouped.groups.push_back({0, 0, edges.size()});
    grouped.edges = std::move(edges);
    return grouped;
  }
  const RelationTypeId max_relation = *std::ranges::max_element(edges.rel);
  std::vector<int64_t> ends(static_cast<size_t>(max_relation) + 1);
  for (const RelationTypeId r : edges.rel) ++ends[r];
  int64_t begin = 0;
  std::vector<int64_t> next(ends.size());
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
      const auto at = static_cast<size_t>(next[r]);
      const auto home = static_cast<size_t>(edges.rel[at]);
      if (home != r) SwapEdges(&edges, at, static_cast<size_t>(next[home]));
      ++next[home];
    }
  }
  edges.rel = {};  // the groups say it; gives the memory back
  grouped.edges = std::move(edges);
  return grouped;
}

EdgeList ExtractEdges(EdgeList* edges, std::span<const int64_t> positions) {
  EdgeList extracted;
  ExtractColumn(&edges->lhs, positions, &extracted.lhs);
  ExtractColumn(&edges->rhs, positions, &extracted.rhs);
  ExtractColumn(&edges->rel, positions, &extracted.rel);
  ExtractColumn(&edges->weight, positions, &extracted.weight);
  return extracted;
}

}  // namespace weft
