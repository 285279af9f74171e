// Where in a run a checkpoint was written: PBG's attributes of the same names, and config/json.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

struct CheckpointMetadata {
  std::string config_json;  // PBG's keys only
  int64_t num_epochs = 0;
  int64_t epoch_idx = 0;
  int64_t num_edge_paths = 0;
  int64_t edge_path_idx = 0;
  std::string edge_path;
  int64_t num_edge_chunks = 0;
  int64_t edge_chunk_idx = 0;
  // Weft's own: EntitiesDigest (graph/dataset_manifest.h) of the data that were trained on; 0: not
  // known. In model files.
  uint64_t entities_digest = 0;
};

}  // namespace weft
