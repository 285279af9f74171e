#include "cli/eval_edges.h"

#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/common/status_macros.h"
#include "services/trainer/indexed_edges.h"

namespace weft::cli {

SeenEntities::SeenEntities(const EntityIndex& entities) {
  for (EntityTypeId type = 0; type < entities.num_types(); ++type) {
    seen_.emplace_back(entities.count(type), false);
  }
}

void SeenEntities::Add(const ModelSpec& spec, std::span<const IndexedEdge> edges) {
  for (const IndexedEdge& edge : edges) {
    const RelationSpec& relation = spec.relation(edge.rel);
    if (!spec.featurized(edge.rel, Side::kLhs)) seen_[relation.lhs][edge.lhs] = true;
    if (!spec.featurized(edge.rel, Side::kRhs)) seen_[relation.rhs][edge.rhs] = true;
  }
}

bool SeenEntities::Contains(const ModelSpec& spec, const IndexedEdge& edge, Side side) const {
  const RelationSpec& relation = spec.relation(edge.rel);
  return spec.featurized(edge.rel, side) ||
         seen_[side == Side::kLhs ? relation.lhs : relation.rhs][edge.entity(side)];
}

namespace {

NumberOfBag NumberIn(BagIndex* bags, bool add) {
  return [bags, add](PartitionKey features, std::span<const EntityOffset> bag) {
    return bags->Number(features, bag, add);
  };
}

}  // namespace

absl::StatusOr<std::vector<IndexedEdge>> ReadEvaluatedEdges(const std::vector<std::string>& paths,
                                                            const ModelSpec& spec,
                                                            const EntityIndex& entities,
                                                            BagIndex* bags) {
  std::vector<IndexedEdge> edges;
  for (const std::string& path : paths) {
    WEFT_RETURN_IF_ERROR(ForEachIndexedEdge(
        path, spec, entities,
        [&](std::span<const IndexedEdge> slice) {
          edges.insert(edges.end(), slice.begin(), slice.end());
        },
        NumberIn(bags, /*add=*/true)));
  }
  if (edges.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("nothing to evaluate: no edges in ", absl::StrJoin(paths, ", ")));
  }
  return edges;
}

absl::StatusOr<int64_t> ReadKnownEdges(const std::vector<std::string>& filters,
                                       const std::vector<std::string>& training,
                                       const ModelSpec& spec, const EntityIndex& entities,
                                       BagIndex* bags, EdgeFilter* filter, SeenEntities* seen) {
  struct Folder {
    std::string path;
    bool filter = false;
    bool training = false;
  };
  std::map<std::string, Folder> folders;  // by what `path` comes to
  auto folder_of = [&](const std::string& path) -> Folder& {
    std::error_code ignored;
    Folder& folder = folders[std::filesystem::weakly_canonical(path, ignored).string()];
    folder.path = path;
    return folder;
  };
  for (const std::string& path : filters) folder_of(path).filter = true;
  for (const std::string& path : training) folder_of(path).training = true;

  int64_t num_filter_edges = 0;
  for (const auto& [canonical, folder] : folders) {
    WEFT_RETURN_IF_ERROR(ForEachIndexedEdge(
        folder.path, spec, entities,
        [&, &folder = folder](std::span<const IndexedEdge> edges) {
          if (folder.filter) {
            filter->Add(edges);
            num_filter_edges += static_cast<int64_t>(edges.size());
          }
          if (folder.training) seen->Add(spec, edges);
        },
        NumberIn(bags, /*add=*/false)));
  }
  return num_filter_edges;
}

}  // namespace weft::cli
