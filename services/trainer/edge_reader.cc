#include "services/trainer/edge_reader.h"

#include <string>
#include <utility>
#include <vector>

#include "graph/edge_bucket_file.h"
#include "services/common/edge_chunk.h"
#include "services/common/status_macros.h"
#include "services/trainer/held_out_edges.h"

namespace weft {

absl::StatusOr<BucketEdges> EdgeReader::Read(const PassPosition& position, Bucket bucket) const {
  const std::string& path = task_.config.edge_paths[position.edge_path];
  WEFT_ASSIGN_OR_RETURN(const int64_t in_bucket, CountEdges(path, bucket));
  const EdgeRange range = EdgeChunkRange(in_bucket, position.edge_chunk, position.num_edge_chunks);
  BucketEdges edges;
  if (range.size() == 0) return edges;

  std::vector<int64_t> lhs_counts;
  std::vector<int64_t> rhs_counts;
  for (const RelationSpec& relation : task_.spec.relations) {
    lhs_counts.push_back(task_.count(task_.Partition(relation.lhs, Side::kLhs, bucket)));
    rhs_counts.push_back(task_.count(task_.Partition(relation.rhs, Side::kRhs, bucket)));
  }
  WEFT_ASSIGN_OR_RETURN(EdgeList all, ReadEdges(path, bucket, range.begin, range.end,
                                                {task_.num_relations(), lhs_counts, rhs_counts}));

  std::vector<int64_t> held_out =
      HeldOutEdges(task_.seed, position.edge_path, bucket, in_bucket, task_.config.eval_fraction)
          .InRange(range);
  for (int64_t& at : held_out) at -= range.begin;
  const bool dynamic = task_.spec.dynamic();
  edges.held_out = GroupEdges(ExtractEdges(&all, held_out), dynamic);
  edges.train = GroupEdges(std::move(all), dynamic);
  return edges;
}

}  // namespace weft
