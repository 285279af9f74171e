#include "services/trainer/indexed_edges.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/edge_bucket_file.h"
#include "graph/edge_list.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kSliceEdges = int64_t{1} << 20;

}  // namespace

absl::Status ForEachIndexedEdge(const std::string& edge_path, const ModelSpec& spec,
                                const EntityIndex& entities,
                                const std::function<void(std::span<const IndexedEdge>)>& each,
                                const NumberOfBag& number_of_bag) {
  std::error_code error;
  if (!std::filesystem::is_directory(edge_path, error)) {
    return absl::NotFoundError(absl::StrCat(edge_path, ": no such folder of edges"));
  }
  int lhs_partitions = 1;
  int rhs_partitions = 1;
  for (const RelationSpec& relation : spec.relations) {
    lhs_partitions = std::max(lhs_partitions, entities.num_partitions(relation.lhs));
    rhs_partitions = std::max(rhs_partitions, entities.num_partitions(relation.rhs));
  }
  // By relation (one for all when dynamic): entities of each side in the bucket at hand, and the
  // numbers of the first of them.
  const size_t num_relations = spec.relations.size();
  std::vector<int64_t> lhs_counts(num_relations);
  std::vector<int64_t> rhs_counts(num_relations);
  std::vector<int64_t> lhs_begins(num_relations);
  std::vector<int64_t> rhs_begins(num_relations);
  EdgeLimits limits;
  limits.num_relations =
      spec.dynamic() ? spec.num_dynamic_relations : static_cast<int64_t>(num_relations);
  limits.lhs_counts = lhs_counts;
  limits.rhs_counts = rhs_counts;
  limits.lhs_featurized = spec.featurized_relations[0];
  limits.rhs_featurized = spec.featurized_relations[1];

  std::vector<IndexedEdge> slice;
  for (Bucket bucket; bucket.lhs < lhs_partitions; ++bucket.lhs) {
    for (bucket.rhs = 0; bucket.rhs < rhs_partitions; ++bucket.rhs) {
      for (size_t r = 0; r < num_relations; ++r) {
        const RelationSpec& relation = spec.relations[r];
        const PartitionId lhs = entities.InBucket(relation.lhs, bucket.lhs);
        const PartitionId rhs = entities.InBucket(relation.rhs, bucket.rhs);
        lhs_counts[r] = entities.count(relation.lhs, lhs);
        rhs_counts[r] = entities.count(relation.rhs, rhs);
        lhs_begins[r] = entities.begin(relation.lhs, lhs);
        rhs_begins[r] = entities.begin(relation.rhs, rhs);
      }
      WEFT_ASSIGN_OR_RETURN(const int64_t num_edges, CountEdges(edge_path, bucket));
      for (int64_t begin = 0; begin < num_edges; begin += kSliceEdges) {
        const int64_t end = std::min(num_edges, begin + kSliceEdges);
        WEFT_ASSIGN_OR_RETURN(const EdgeList edges,
                              ReadEdges(edge_path, bucket, begin, end, limits));
        slice.clear();
        for (int64_t i = 0; i < edges.size(); ++i) {
          const size_t r = spec.dynamic() ? 0 : static_cast<size_t>(edges.rel[i]);
          slice.push_back(
              {lhs_begins[r] + edges.lhs[i], rhs_begins[r] + edges.rhs[i], edges.rel[i]});
          if (!edges.featurized()) continue;
          IndexedEdge& edge = slice.back();
          const RelationSpec& relation = spec.relations[r];
          if (spec.featurized(edge.rel, Side::kLhs)) {
            const PartitionId partition = entities.InBucket(relation.lhs, bucket.lhs);
            edge.lhs = number_of_bag({relation.lhs, partition}, edges.features[0][i]);
          }
          if (spec.featurized(edge.rel, Side::kRhs)) {
            const PartitionId partition = entities.InBucket(relation.rhs, bucket.rhs);
            edge.rhs = number_of_bag({relation.rhs, partition}, edges.features[1][i]);
          }
        }
        each(slice);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
