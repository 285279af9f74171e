#include "tests/cli/small_checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "graph/entity_files.h"
#include "services/common/file_util.h"
#include "services/common/random.h"
#include "services/common/status_macros.h"
#include "services/trainer/model/model_parameters.h"
#include "tests/testing/status_matchers.h"

namespace weft::testing {
namespace {

constexpr int64_t kNumDynamicRelations = 3;

CheckpointDir DirOf(const SmallCheckpoint& checkpoint) {
  std::vector<CheckpointDir::EntityType> types;
  for (const EntityConfig& type : checkpoint.config.entities) {
    types.push_back({type.name, type.num_partitions});
  }
  return CheckpointDir(checkpoint.path, types);
}

void Fill(RandomStream& random, std::span<float> values) {
  for (float& x : values) x = random.Normal();
}

}  // namespace

std::span<const float> SmallCheckpoint::Row(const std::string& type,
                                            const std::string& name) const {
  for (size_t t = 0; t < names.size(); ++t) {
    if (config.entities[t].name != type) continue;
    for (size_t p = 0; p < names[t].size(); ++p) {
      const auto found = std::ranges::find(names[t][p], name);
      if (found != names[t][p].end()) {
        return tables[t][p].embeddings.row(found - names[t][p].begin());
      }
    }
  }
  ADD_FAILURE() << "no " << type << " " << name;
  return {};
}

absl::Status SmallCheckpoint::Rewrite() const {
  CheckpointDir dir = DirOf(*this);
  for (size_t t = 0; t < tables.size(); ++t) {
    for (size_t p = 0; p < tables[t].size(); ++p) {
      WEFT_RETURN_IF_ERROR(
          WriteEmbeddingsFile(dir.EmbeddingsPath(config.entities[t].name, static_cast<int>(p), 1),
                              tables[t][p], 0.1, {}));
    }
  }
  WEFT_RETURN_IF_ERROR(WriteModelFile(dir.ModelPath(1), parameters, 0.1, {}));
  return dir.Commit(1);
}

SmallCheckpoint MakeSmallCheckpoint(const std::string& folder, const std::string& config_json) {
  SmallCheckpoint made;
  made.run_path = folder + "/run.json";
  made.path = folder + "/model";
  made.entity_path = folder + "/entities";
  const std::vector<std::string> paths = {absl::StrCat("entity_path=", made.entity_path),
                                          absl::StrCat("edge_paths=", folder, "/edges"),
                                          absl::StrCat("checkpoint_path=", made.path)};
  absl::StatusOr<ConfigResult> parsed = ParseRunConfig(config_json, "test", paths);
  EXPECT_THAT(parsed, IsOk());
  made.config = std::move(parsed->config);
  for (const std::string& path : {made.entity_path, made.path}) {
    EXPECT_THAT(MakeDirectories(path), IsOk());
  }
  const std::string json = RunConfigToJson(made.config, /*pbg_keys_only=*/false);
  EXPECT_THAT(WriteFileAtomically(made.run_path, json), IsOk());
  EXPECT_THAT(WriteFileAtomically(made.path + "/weft_config.json", json), IsOk());

  RandomStream random(1, RandomUse::kTest);
  for (size_t t = 0; t < made.config.entities.size(); ++t) {
    const EntityConfig& type = made.config.entities[t];
    auto& tables = made.tables.emplace_back();
    auto& names = made.names.emplace_back();
    for (int p = 0; p < type.num_partitions; ++p) {
      const int64_t count = 3 + p;
      EmbeddingPartition& table =
          tables.emplace_back(count, made.config.EntityDimension(static_cast<EntityTypeId>(t)));
      Fill(random, table.embeddings.span());
      auto& of_partition = names.emplace_back();
      for (int64_t i = 0; i < count; ++i) {
        of_partition.push_back(absl::StrCat(type.name, " ", p, ".", i));
      }
      EXPECT_THAT(WriteEntityCount(made.entity_path, type.name, p, count), IsOk());
      EXPECT_THAT(WriteEntityNames(made.entity_path, type.name, p, of_partition), IsOk());
    }
  }
  const int64_t dynamic = made.config.dynamic_relations ? kNumDynamicRelations : 0;
  for (int64_t r = 0; r < dynamic; ++r) {
    made.relation_names.push_back(absl::StrCat("relation ", r));
  }
  if (dynamic > 0) {
    EXPECT_THAT(WriteRelationCount(made.entity_path, dynamic), IsOk());
  } else {
    for (const RelationConfig& r : made.config.relations) made.relation_names.push_back(r.name);
  }
  EXPECT_THAT(WriteRelationNames(made.entity_path, made.relation_names), IsOk());
  made.spec = *MakeModelSpec(made.config, dynamic);
  made.parameters = MakeInitialParameters(made.spec);
  for (Parameter& parameter : made.parameters.all()) Fill(random, parameter.values.span());
  EXPECT_THAT(made.Rewrite(), IsOk());
  return made;
}

}  // namespace weft::testing
