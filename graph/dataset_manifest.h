// weft_manifest.json lies beside the files of an import, in the entity path and in every edge path:
// what was imported, with which settings, what came out, and a checksum for every file. A folder
// without one (made by PBG) is fine to train on; one whose manifest contradicts the configuration
// or the other folders is not.
//
// The folders of one import share its `import_id`: XXH3-64 over the digests of the inputs and the
// settings that matter. Equal ids mean equal data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/common/run_config.h"
#include "services/common/types.h"

namespace weft {

// DatasetSchema is what a configuration says about data on disk: entity types, their partitions,
// and the relations with their sides. Nothing about the model.
struct DatasetSchema {
  struct EntityType {
    std::string name;
    int num_partitions = 1;
    bool featurized = false;  // what the data holds of it are features
  };
  struct Relation {
    std::string name;
    EntityTypeId lhs = 0;
    EntityTypeId rhs = 0;

    EntityTypeId side(Side s) const { return s == Side::kLhs ? lhs : rhs; }
  };

  bool featurized() const;  // whether any entity type is
  // The largest partition count among the entity types on that side of a relation.
  int NumPartitions(Side side) const;

  std::vector<EntityType> entities;
  std::vector<Relation> relations;  // one when dynamic: the sides of all of them
  bool dynamic_relations = false;
};

DatasetSchema DatasetSchemaOf(const RunConfig& config);

struct DatasetManifest {
  static constexpr char kFileName[] = "weft_manifest.json";
  static constexpr int kFormatVersion = 1;

  struct Input {
    std::string name;  // as it was given; for people, not compared
    int64_t bytes = 0;
    uint64_t hash = 0;  // XXH3-64 of the file as it lay on the disk
    int64_t edges = 0;
    int64_t bad_lines = 0;
    int64_t new_entities = 0;  // that appear in no earlier input
    bool operator==(const Input&) const = default;
  };
  struct EntityCounts {
    std::string type;
    std::vector<int64_t> counts;  // by partition
    bool operator==(const EntityCounts&) const = default;
  };
  struct BucketCount {
    Bucket bucket;
    int64_t edges = 0;
    bool operator==(const BucketCount&) const = default;
  };
  struct File {
    std::string name;  // within the folder
    int64_t bytes = 0;
    uint64_t hash = 0;  // XXH3-64
    bool operator==(const File&) const = default;
  };

  bool operator==(const DatasetManifest&) const = default;

  uint64_t import_id = 0;
  // Configuration and options that matter, in words: {"entities.user.partitions", "4"}.
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<Input> inputs;  // in the order of the edge paths
  std::vector<EntityCounts> entities;
  int64_t num_relations = 0;
  uint64_t relation_names_hash = 0;  // XXH3-64 of the names, each followed by a NUL
  // Of the folder that the manifest lies in:
  std::vector<BucketCount> buckets;  // the ones with edges; empty in an entity path
  std::vector<File> files;
};

// The settings of a schema, as DatasetManifest::settings holds them (before the importer's
// options).
std::vector<std::pair<std::string, std::string>> SchemaSettings(const DatasetSchema& schema);

// The import_id that these inputs and settings give.
uint64_t ImportId(absl::Span<const DatasetManifest::Input> inputs,
                  absl::Span<const std::pair<std::string, std::string>> settings);

// What differs between two lists of settings, one line each; empty when nothing does.
std::vector<std::string> DescribeChanges(absl::Span<const std::pair<std::string, std::string>> was,
                                         absl::Span<const std::pair<std::string, std::string>> now);

// The manifest in folder `folder`.
// Errors: NotFound (there is none), DataLoss (damaged), FailedPrecondition (a later format).
absl::StatusOr<DatasetManifest> ReadManifest(const std::string& folder);
absl::StatusOr<DatasetManifest> ParseManifest(std::string_view json, absl::string_view origin);

std::string ManifestToJson(const DatasetManifest& manifest);

// What rows of tables mean: a digest of the names of all entities and relations, in order, as the
// manifest in `entity_path` has them. 0 when there is no manifest. Errors: as ReadManifest.
absl::StatusOr<uint64_t> EntitiesDigest(const std::string& entity_path);

// Whether the ids in these edge paths are those of the entities in `entity_path`, as far as both
// have manifests. Errors: FailedPrecondition (of another import; names the edge path), DataLoss.
absl::Status CheckSameImport(const std::string& entity_path,
                             absl::Span<const std::string> edge_paths);

// Where an import works within a folder until it publishes. See CheckDataset.
inline constexpr char kImportStagingFolder[] = ".weft-import";
inline constexpr char kImportCommitFile[] = "commit.json";

// Whether the data in these folders may be trained on (or evaluated) with `schema`. Looks at
// manifests and entity counts, not at edges.
// Errors: FailedPrecondition: an import is half published, or was made with another configuration,
//   or the folders belong to different imports, or a count contradicts the manifest; NotFound: an
//   entity count is missing; DataLoss: a damaged file.
absl::Status CheckDataset(const DatasetSchema& schema, const std::string& entity_path,
                          absl::Span<const std::string> edge_paths);

}  // namespace weft
