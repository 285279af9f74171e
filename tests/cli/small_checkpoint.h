// A small checkpoint with random values, for tests of the commands that read one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/common/embedding_partition.h"
#include "services/common/parameter_set.h"
#include "services/common/run_config.h"
#include "services/trainer/model/model_spec.h"

namespace weft::testing {

struct SmallCheckpoint {
  RunConfig config;
  ModelSpec spec;
  std::string run_path;  // run.json
  std::string path;      // the checkpoint folder
  std::string entity_path;
  std::vector<std::vector<EmbeddingPartition>> tables;       // [type][partition]
  std::vector<std::vector<std::vector<std::string>>> names;  // [type][partition][offset]
  ParameterSet parameters;
  std::vector<std::string> relation_names;

  // The row of an entity by its name; fails the test when there is none.
  std::span<const float> Row(const std::string& type, const std::string& name) const;
  // Writes the tables and parameters again, as the same version.
  absl::Status Rewrite() const;
};

// Writes FOLDER/run.json, FOLDER/entities and FOLDER/model, version 1. `config_json`: without
// paths. Entities are called "TYPE PARTITION.OFFSET", 3 + partition of them a partition; dynamic
// relations, of which there are 3, "relation N".
SmallCheckpoint MakeSmallCheckpoint(const std::string& folder, const std::string& config_json);

}  // namespace weft::testing
