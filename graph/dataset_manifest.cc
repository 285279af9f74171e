#include "graph/dataset_manifest.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/entity_files.h"
#include "graph/stable_partition.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using Settings = std::vector<std::pair<std::string, std::string>>;

std::string HashToText(uint64_t hash) { return absl::StrFormat("%016x", hash); }

// Reads a manifest and remembers the first thing that is wrong with it. Everything it returns is
// usable, if useless, after that.
class ManifestReader {
 public:
  explicit ManifestReader(absl::string_view origin) : origin_(origin) {}

  const absl::Status& status() const { return status_; }

  const Json& Member(const Json& object, const char* key) {
    static const Json kNull;
    if (object.is_object()) {
      const auto found = object.find(key);
      if (found != object.end()) return *found;
    }
    Fail(absl::StrCat("has no ", key));
    return kNull;
  }
  std::string Text(const Json& object, const char* key) {
    const Json& value = Member(object, key);
    if (value.is_string()) return value.get<std::string>();
    Fail(absl::StrCat(key, " is not a string"));
    return "";
  }
  int64_t Count(const Json& value, const char* what) {
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return value.get<int64_t>();
    }
    Fail(absl::StrCat(what, " is not a count"));
    return 0;
  }
  int64_t CountOf(const Json& object, const char* key) { return Count(Member(object, key), key); }
  uint64_t Hash(const Json& object, const char* key) {
    const std::string text = Text(object, key);
    uint64_t hash = 0;
    const bool digits = text.size() == 16 && std::all_of(text.begin(), text.end(), [](char c) {
                          return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                        });
    if (!digits) {
      Fail(absl::StrCat(key, " is not a hash of 16 hexadecimal digits"));
      return 0;
    }
    for (const char c : text) {
      hash = (hash << 4) | static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return hash;
  }
  // An empty array when it is none.
  const Json& Array(const Json& object, const char* key) {
    static const Json kEmpty = Json::array();
    const Json& value = Member(object, key);
    if (value.is_array()) return value;
    Fail(absl::StrCat(key, " is not an array"));
    return kEmpty;
  }
  PartitionId Partition(const Json& value) {
    const int64_t partition = Count(value, "a partition");
    if (partition > std::numeric_limits<PartitionId>::max()) Fail("a partition is out of range");
    return static_cast<PartitionId>(partition);
  }
  void Fail(absl::string_view what) {
    if (status_.ok()) status_ = absl::DataLossError(absl::StrCat(origin_, ": damaged: ", what));
  }

 private:
  const absl::string_view origin_;
  absl::Status status_;
};

void ReadInputs(const Json& root, ManifestReader* reader, DatasetManifest* manifest) {
  for (const Json& input : reader->Array(root, "inputs")) {
    manifest->inputs.push_back({reader->Text(input, "name"), reader->CountOf(input, "bytes"),
                                reader->Hash(input, "xxh3"), reader->CountOf(input, "edges"),
                                reader->CountOf(input, "bad_lines"),
                                reader->CountOf(input, "new_entities")});
  }
}

void ReadEntities(const Json& root, ManifestReader* reader, DatasetManifest* manifest) {
  for (const Json& type : reader->Array(root, "entities")) {
    DatasetManifest::EntityCounts counts{reader->Text(type, "type"), {}};
    for (const Json& count : reader->Array(type, "counts")) {
      counts.counts.push_back(reader->Count(count, "an entity count"));
    }
    manifest->entities.push_back(std::move(counts));
  }
}

void ReadBuckets(const Json& root, ManifestReader* reader, DatasetManifest* manifest) {
  for (const Json& bucket : reader->Array(root, "buckets")) {
    if (!bucket.is_array() || bucket.size() != 3) {
      reader->Fail("a bucket is not [lhs, rhs, edges]");
      return;
    }
    manifest->buckets.push_back({{reader->Partition(bucket[0]), reader->Partition(bucket[1])},
                                 reader->Count(bucket[2], "the edges of a bucket")});
  }
}

void ReadFiles(const Json& root, ManifestReader* reader, DatasetManifest* manifest) {
  for (const Json& file : reader->Array(root, "files")) {
    manifest->files.push_back(
        {reader->Text(file, "name"), reader->CountOf(file, "bytes"), reader->Hash(file, "xxh3")});
  }
}

// Options have the names of their flags.
Settings WithoutOptions(const Settings& settings) {
  Settings schema;
  std::copy_if(settings.begin(), settings.end(), std::back_inserter(schema),
               [](const auto& setting) { return !absl::StartsWith(setting.first, "--"); });
  return schema;
}

absl::Status CountMismatch(const std::string& path, int64_t counted, int64_t recorded) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": says ", counted,
                                                    ", but the manifest of the import says ",
                                                    recorded, "; import again"));
}

// `manifest`: null when there is none. Its settings agree with the schema.
absl::Status OfAnotherImport(const std::string& edge_path, const std::string& entity_path) {
  return absl::FailedPreconditionError(
      absl::StrCat(edge_path, ": belongs to another import than the entities in ", entity_path,
                   "; import them together"));
}

absl::Status CheckCounts(const DatasetSchema& schema, const std::string& entity_path,
                         const DatasetManifest* manifest) {
  for (size_t t = 0; t < schema.entities.size(); ++t) {
    const DatasetSchema::EntityType& type = schema.entities[t];
    for (int partition = 0; partition < type.num_partitions; ++partition) {
      const absl::StatusOr<int64_t> count = ReadEntityCount(entity_path, type.name, partition);
      if (absl::IsNotFound(count.status())) {
        return absl::NotFoundError(
            absl::StrCat(count.status().message(), "; run `weft import` first"));
      }
      WEFT_RETURN_IF_ERROR(count.status());
      if (manifest == nullptr) continue;
      const bool listed = t < manifest->entities.size() &&
                          static_cast<size_t>(partition) < manifest->entities[t].counts.size();
      const int64_t recorded = listed ? manifest->entities[t].counts[partition] : -1;
      if (*count != recorded) {
        return CountMismatch(EntityCountPath(entity_path, type.name, partition), *count, recorded);
      }
    }
  }
  if (!schema.dynamic_relations) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int64_t count, ReadRelationCount(entity_path));
  if (manifest != nullptr && count != manifest->num_relations) {
    return CountMismatch(absl::StrCat(entity_path, "/dynamic_rel_count.txt"), count,
                         manifest->num_relations);
  }
  return absl::OkStatus();
}

}  // namespace

int DatasetSchema::NumPartitions(Side side) const {
  int most = 1;
  for (const Relation& relation : relations) {
    most = std::max(most, entities[relation.side(side)].num_partitions);
  }
  return most;
}

bool DatasetSchema::featurized() const {
  return std::ranges::any_of(entities, &EntityType::featurized);
}

DatasetSchema DatasetSchemaOf(const RunConfig& config) {
  DatasetSchema schema;
  for (const EntityConfig& entity : config.entities) {
    schema.entities.push_back({entity.name, entity.num_partitions, entity.featurized});
  }
  for (const RelationConfig& relation : config.relations) {
    schema.relations.push_back({relation.name, relation.lhs, relation.rhs});
  }
  schema.dynamic_relations = config.dynamic_relations;
  return schema;
}

Settings SchemaSettings(const DatasetSchema& schema) {
  Settings settings;
  for (const DatasetSchema::EntityType& entity : schema.entities) {
    settings.emplace_back(absl::StrCat("entities.", entity.name, ".num_partitions"),
                          absl::StrCat(entity.num_partitions));
    if (entity.featurized) {
      settings.emplace_back(absl::StrCat("entities.", entity.name, ".featurized"), "true");
    }
  }
  settings.emplace_back("dynamic_relations", schema.dynamic_relations ? "true" : "false");
  for (size_t i = 0; i < schema.relations.size(); ++i) {
    const DatasetSchema::Relation& relation = schema.relations[i];
    // In dynamic mode the configured relation only lends its sides.
    settings.emplace_back(absl::StrCat("relations[", i, "]"),
                          absl::StrCat(schema.dynamic_relations ? "*" : relation.name, ": ",
                                       schema.entities[relation.lhs].name, " -> ",
                                       schema.entities[relation.rhs].name));
  }
  return settings;
}

uint64_t ImportId(absl::Span<const DatasetManifest::Input> inputs,
                  absl::Span<const std::pair<std::string, std::string>> settings) {
  std::string text = absl::StrCat("weft import ", DatasetManifest::kFormatVersion, "\n");
  for (const DatasetManifest::Input& input : inputs) {
    absl::StrAppend(&text, "input ", input.bytes, " ", HashToText(input.hash), "\n");
  }
  for (const auto& [key, value] : settings) {
    // Lengths first: no key or value can imitate another list.
    absl::StrAppend(&text, key.size(), " ", key, " ", value.size(), " ", value, "\n");
  }
  return HashBytes(text);
}

std::vector<std::string> DescribeChanges(
    absl::Span<const std::pair<std::string, std::string>> was,
    absl::Span<const std::pair<std::string, std::string>> now) {
  const std::map<std::string_view, std::string_view> before(was.begin(), was.end());
  std::map<std::string_view, std::string_view> gone = before;
  std::vector<std::string> changes;
  for (const auto& [key, value] : now) {
    gone.erase(key);
    const auto found = before.find(key);
    if (found == before.end()) {
      changes.push_back(absl::StrCat(key, " is now ", value, ", was not there"));
    } else if (found->second != value) {
      changes.push_back(absl::StrCat(key, " is now ", value, ", was ", std::string(found->second)));
    }
  }
  for (const auto& [key, value] : was) {
    if (gone.contains(key)) changes.push_back(absl::StrCat(key, " is gone, was ", value));
  }
  if (changes.empty() && was != now) changes.push_back("the entity types are in another order");
  return changes;
}

std::string ManifestToJson(const DatasetManifest& manifest) {
  Json root = Json::object();
  root["format_version"] = DatasetManifest::kFormatVersion;
  root["import_id"] = HashToText(manifest.import_id);
  Json settings = Json::object();
  for (const auto& [key, value] : manifest.settings) settings[key] = value;
  root["settings"] = std::move(settings);
  root["inputs"] = Json::array();
  for (const DatasetManifest::Input& input : manifest.inputs) {
    root["inputs"].push_back({{"name", input.name},
                              {"bytes", input.bytes},
                              {"xxh3", HashToText(input.hash)},
                              {"edges", input.edges},
                              {"bad_lines", input.bad_lines},
                              {"new_entities", input.new_entities}});
  }
  root["entities"] = Json::array();
  for (const DatasetManifest::EntityCounts& counts : manifest.entities) {
    root["entities"].push_back({{"type", counts.type}, {"counts", counts.counts}});
  }
  root["num_relations"] = manifest.num_relations;
  root["relation_names_xxh3"] = HashToText(manifest.relation_names_hash);
  root["buckets"] = Json::array();
  for (const DatasetManifest::BucketCount& bucket : manifest.buckets) {
    root["buckets"].push_back(Json::array({bucket.bucket.lhs, bucket.bucket.rhs, bucket.edges}));
  }
  root["files"] = Json::array();
  for (const DatasetManifest::File& file : manifest.files) {
    root["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"xxh3", HashToText(file.hash)}});
  }
  // An input's name may hold any bytes; everything else is UTF-8.
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<DatasetManifest> ParseManifest(std::string_view json, absl::string_view origin) {
  const Json root = Json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) {
    return absl::DataLossError(absl::StrCat(origin, ": damaged: is not a JSON object"));
  }
  ManifestReader reader(origin);
  const int64_t version = reader.CountOf(root, "format_version");
  WEFT_RETURN_IF_ERROR(reader.status());
  if (version != DatasetManifest::kFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(origin, ": format_version is ", version, ", this program knows ",
                     DatasetManifest::kFormatVersion, "; import again or use a later Weft"));
  }
  DatasetManifest manifest;
  manifest.import_id = reader.Hash(root, "import_id");
  const Json& settings = reader.Member(root, "settings");
  if (!settings.is_object()) reader.Fail("settings is not an object");
  for (const auto& [key, value] : settings.items()) {
    manifest.settings.emplace_back(key, reader.Text(settings, key.c_str()));
  }
  ReadInputs(root, &reader, &manifest);
  ReadEntities(root, &reader, &manifest);
  manifest.num_relations = reader.CountOf(root, "num_relations");
  manifest.relation_names_hash = reader.Hash(root, "relation_names_xxh3");
  ReadBuckets(root, &reader, &manifest);
  ReadFiles(root, &reader, &manifest);
  WEFT_RETURN_IF_ERROR(reader.status());
  return manifest;
}

absl::StatusOr<DatasetManifest> ReadManifest(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", DatasetManifest::kFileName);
  WEFT_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  return ParseManifest(json, path);
}

absl::Status CheckSameImport(const std::string& entity_path,
                             absl::Span<const std::string> edge_paths) {
  const absl::StatusOr<DatasetManifest> manifest = ReadManifest(entity_path);
  if (absl::IsNotFound(manifest.status())) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(manifest.status());
  for (const std::string& edge_path : edge_paths) {
    const absl::StatusOr<DatasetManifest> edges = ReadManifest(edge_path);
    if (absl::IsNotFound(edges.status())) continue;  // made by PBG
    WEFT_RETURN_IF_ERROR(edges.status());
    if (edges->import_id != manifest->import_id) return OfAnotherImport(edge_path, entity_path);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> EntitiesDigest(const std::string& entity_path) {
  const absl::StatusOr<DatasetManifest> manifest = ReadManifest(entity_path);
  if (absl::IsNotFound(manifest.status())) return uint64_t{0};
  WEFT_RETURN_IF_ERROR(manifest.status());
  std::vector<std::string> names = {absl::StrCat(manifest->relation_names_hash)};
  for (const DatasetManifest::File& file : manifest->files) {
    if (absl::StartsWith(file.name, "entity_names_")) {
      names.push_back(absl::StrCat(file.name, " ", file.hash));
    }
  }
  std::ranges::sort(names);
  const std::string text = absl::StrJoin(names, "\n");
  return XXH3_64bits(text.data(), text.size());
}

absl::Status CheckDataset(const DatasetSchema& schema, const std::string& entity_path,
                          absl::Span<const std::string> edge_paths) {
  const std::string commit =
      absl::StrCat(entity_path, "/", kImportStagingFolder, "/", kImportCommitFile);
  std::error_code ignored;
  if (std::filesystem::exists(commit, ignored)) {
    return absl::FailedPreconditionError(
        absl::StrCat(entity_path,
                     ": an import was interrupted while it published its files; "
                     "run `weft import` again to finish it"));
  }
  const absl::StatusOr<DatasetManifest> manifest = ReadManifest(entity_path);
  if (!manifest.ok() && !absl::IsNotFound(manifest.status())) return manifest.status();
  if (manifest.ok()) {
    const std::vector<std::string> changes =
        DescribeChanges(WithoutOptions(manifest->settings), SchemaSettings(schema));
    if (!changes.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(entity_path, ": was imported with another configuration (",
                       absl::StrJoin(changes, "; "), "); import again with this one"));
    }
  }
  WEFT_RETURN_IF_ERROR(CheckCounts(schema, entity_path, manifest.ok() ? &*manifest : nullptr));
  for (const std::string& edge_path : edge_paths) {
    if (absl::StartsWith(edge_path, kClusterPathPrefix)) {
      return absl::FailedPreconditionError(
          absl::StrCat(edge_path,
                       ": only a cluster trains on edges that its servers hold (weft cluster up); "
                       "name a folder in edge_paths"));
    }
    if (!std::filesystem::is_directory(edge_path, ignored)) {
      return absl::NotFoundError(
          absl::StrCat(edge_path, ": no such folder of edges; run `weft import` first"));
    }
    const absl::StatusOr<DatasetManifest> edges = ReadManifest(edge_path);
    if (absl::IsNotFound(edges.status())) continue;  // made by PBG
    WEFT_RETURN_IF_ERROR(edges.status());
    if (!manifest.ok() || edges->import_id != manifest->import_id) {
      return OfAnotherImport(edge_path, entity_path);
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
