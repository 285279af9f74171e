#include "cli/cluster_run.h"

#include <utility>

#include "services/common/status_macros.h"
#include "services/trainer/model/model_parameters.h"

namespace weft::cli {

absl::StatusOr<ClusterRun> ClusterRunOf(const v1::RunInfo& info) {
  ClusterRun run;
  WEFT_ASSIGN_OR_RETURN(ConfigResult result,
                        ParseRunConfig(info.config_json(), "the run's configuration"));
  run.config = std::move(result.config);
  run.seed = info.seed();
  for (const v1::EntityTypeCounts& type : info.entity_types()) {
    run.data.entity_counts.emplace_back(type.counts().begin(), type.counts().end());
  }
  if (run.data.entity_counts.size() != run.config.entities.size()) {
    return absl::InvalidArgumentError("the lock server's entity counts are not whole");
  }
  run.data.num_dynamic_relations = info.num_dynamic_relations();
  run.data.entities_digest = info.entities_digest();
  for (const v1::DataSet& edges : info.data_sets()) {
    run.data.edge_paths.push_back({{}, edges.digest(), {}});
  }
  run.data.edge_paths.resize(run.config.edge_paths.size());
  WEFT_ASSIGN_OR_RETURN(run.spec, MakeModelSpec(run.config, info.num_dynamic_relations()));
  return run;
}

SharedState InitialSharedState(const ClusterRun& run) {
  SharedState state;
  state.parameters = MakeInitialParameters(run.spec);
  for (size_t t = 0; t < run.data.entity_counts.size(); ++t) {
    EmbeddingPartition& table = state.unpartitioned.emplace_back();
    const std::vector<int64_t>& counts = run.data.entity_counts[t];
    if (counts.size() != 1) continue;
    const PartitionKey key = {static_cast<EntityTypeId>(t), 0};
    table =
        MakeInitialEmbeddings(run.seed, key, counts[0], run.config.EntityDimension(key.entity_type),
                              run.config.init_scale);
  }
  return state;
}

}  // namespace weft::cli
