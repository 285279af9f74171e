// Importer turns files of edges into a data set to train on: entity lists in `entity_path`, and one
// folder of bucket files an input, all in PBG's format.
//
// The partition of an entity is a hash of its type and name (of a feature: FeatureGroups); within a
// partition entities stand in order of first appearance over all inputs in their order, so the
// result does not depend on threads. Memory does not grow with the number of edges, only with the
// names of the entities.
//
// The result appears as a whole or not at all (Publication), with a manifest in every folder
// (DatasetManifest). Importing the same inputs with the same settings again does nothing; over the
// files of another import it is refused, saying what changed, unless `force` is set.
//
// Errors: InvalidArgument (options; lines that cannot be used, as `file:line: reason: "text"`),
// FailedPrecondition (other files are there already), NotFound, PermissionDenied, DataLoss (a
// damaged compressed input), ResourceExhausted (memory_bytes, a full disk).
// Thread-safety: Import uses threads of its own; one import a process and folder at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dataset_manifest.h"
#include "graph/import/edge_parser.h"
#include "graph/import/rare_filter.h"

namespace weft {

struct ImportProgress {
  int64_t bytes_read = 0;
  int64_t bytes_total = 0;  // 0: not known (a pipe)
  int64_t edges = 0;
  int64_t entities = 0;
  std::string_view phase;  // "reading", "filtering", "writing"
};

struct ImportOptions {
  DatasetSchema schema;
  std::string entity_path;
  std::vector<std::string> edge_paths;
  std::vector<std::string> inputs;  // one an edge path; "-" is standard input

  EdgeParser::Options parser;
  char feature_delimiter = ',';  // between the features of a featurized type's entity
  RareFilter::Options rare;
  bool drop_duplicates = false;  // within an input
  int64_t max_bad_lines = 0;     // over all inputs
  // PBG wants a file for every bucket, also for the empty ones. They are written up to this many
  // buckets, above it only when `pbg_compatible`.
  int64_t max_empty_buckets = 4096;
  bool pbg_compatible = false;
  bool force = false;  // replace what is there

  int threads = 1;
  // For names, buffers and sorting together; beyond it the import ends with an error.
  int64_t memory_bytes = int64_t{4} << 30;

  std::function<void(const ImportProgress&)> on_progress;  // a few times a second
  std::function<void(std::string_view step)> on_step;      // for tests: see Publication
};

struct ImportReport {
  struct Input {
    std::string name;
    int64_t lines = 0;
    int64_t blank_lines = 0;
    int64_t bad_lines = 0;
    int64_t unknown_relations = 0;  // lines skipped for them
    int64_t rare = 0;               // edges dropped with rare relations and entities
    int64_t duplicates = 0;
    int64_t edges = 0;         // written
    int64_t new_entities = 0;  // that appear in no earlier input
    int64_t nonempty_buckets = 0;
  };

  bool already_imported = false;  // then only entities, inputs' edges and so on of the manifest
  std::vector<Input> inputs;
  std::vector<DatasetManifest::EntityCounts> entities;
  int64_t num_relations = 0;
  int64_t dropped_relations = 0;
  int64_t dropped_entities = 0;
  int num_lhs_partitions = 1;
  int num_rhs_partitions = 1;
  std::vector<std::string> warnings;

  int64_t num_edges() const;
  int64_t num_entities() const;
};

// All that is wrong with the options, one problem a line, as InvalidArgument. Import checks it too.
absl::Status CheckImportOptions(const ImportOptions& options);

// The settings that decide what an import yields, as the manifest holds them.
std::vector<std::pair<std::string, std::string>> ImportSettings(const ImportOptions& options);

absl::StatusOr<ImportReport> Import(const ImportOptions& options);

}  // namespace weft
