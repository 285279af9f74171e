#include "services/trainer/edge_reader.h"

#include <utility>
#include <vector>

#include "services/common/edge_chunk.h"
#include "services/common/status_macros.h"
#include "services/trainer/held_out_edges.h"

namespace weft {
namespace {

size_t Index(Side side) { return static_cast<size_t>(side); }

}  // namespace

absl::StatusOr<BucketEdges> EdgeReader::Read(const PassPosition& position, Bucket bucket) const {
  WEFT_ASSIGN_OR_RETURN(const int64_t in_bucket, source_.Count(position.edge_path, bucket));
  const EdgeRange range = EdgeChunkRange(in_bucket, position.edge_chunk, position.num_edge_chunks);
  if (range.size() == 0) return BucketEdges();

  std::vector<int64_t> lhs_counts;
  std::vector<int64_t> rhs_counts;
  for (const RelationSpec& relation : task_.spec.relations) {
    lhs_counts.push_back(task_.count(task_.Partition(relation.lhs, Side::kLhs, bucket)));
    rhs_counts.push_back(task_.count(task_.Partition(relation.rhs, Side::kRhs, bucket)));
  }
  const std::vector<int64_t> held_out =
      HeldOutEdges(task_.seed, position.edge_path, bucket, in_bucket, task_.config.eval_fraction)
          .InRange(range);
  const auto num_held_out = static_cast<int64_t>(held_out.size());
  const ModelSpec& spec = task_.spec;
  PackedEdges train;
  PackedEdges apart;
  BucketEdges edges;
  auto next_apart = held_out.begin();
  const auto take = [&](int64_t first, const EdgeList& block) {
    if (first == range.begin) {
      const bool with_relations = task_.num_relations() > 1;
      train = PackedEdges(range.size() - num_held_out, with_relations, block.weighted());
      apart = PackedEdges(num_held_out, with_relations, block.weighted());
    }
    for (int64_t i = 0; i < block.size(); ++i) {
      const auto at = static_cast<size_t>(i);
      Edge edge{block.lhs[at], block.rhs[at], block.rel[at],
                block.weighted() ? block.weight[at] : 1.0f};
      const bool is_held_out = next_apart != held_out.end() && *next_apart == first + i;
      if (is_held_out) ++next_apart;
      for (const Side side : kSides) {
        if (!spec.featurized(edge.rel, side)) continue;
        FeatureBags& bags = (is_held_out ? edges.held_out : edges.train).bags[Index(side)];
        (side == Side::kLhs ? edge.lhs : edge.rhs) = static_cast<EntityOffset>(bags.size());
        bags.Append(block.features[Index(side)][i]);
      }
      (is_held_out ? apart : train).Append(edge);
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(source_.Read(
      position.edge_path, bucket, range.begin, range.end,
      {task_.num_relations(), lhs_counts, rhs_counts, spec.featurized_relations[Index(Side::kLhs)],
       spec.featurized_relations[Index(Side::kRhs)]},
      take));
  for (auto [from, to] : {std::pair(&train, &edges.train), {&apart, &edges.held_out}}) {
    GroupedEdges grouped = GroupEdges(std::move(*from), spec.dynamic());
    for (GroupedEdges::Group& group : grouped.groups) {
      for (const Side side : kSides) {
        group.featurized[Index(side)] = spec.featurized(group.relation, side);
      }
    }
    to->edges = std::move(grouped.edges);
    to->groups = std::move(grouped.groups);
  }
  return edges;
}

}  // namespace weft
