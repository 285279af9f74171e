// Checks of ImportOptions, and the settings that identify an import.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/import/importer.h"

namespace weft {
namespace {

constexpr int64_t kMinMemoryBytes = int64_t{64} << 20;
constexpr int64_t kMaxBuckets = int64_t{1} << 24;
constexpr int kMaxColumn = 9'999;

class Problems {
 public:
  void Require(bool condition, std::string problem) {
    if (!condition) problems_.push_back(std::move(problem));
  }
  absl::Status ToStatus() const {
    if (problems_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(problems_, "\n"));
  }

 private:
  std::vector<std::string> problems_;
};

void CheckSchema(const DatasetSchema& schema, Problems* problems) {
  const auto num_types = static_cast<EntityTypeId>(schema.entities.size());
  problems->Require(!schema.entities.empty(), "the configuration has no entity types");
  problems->Require(!schema.relations.empty(), "the configuration has no relations");
  for (const DatasetSchema::EntityType& type : schema.entities) {
    problems->Require(
        !type.name.empty() && type.name.find('/') == std::string::npos &&
            type.name.find('\0') == std::string::npos,
        absl::StrCat("entity type \"", absl::CEscape(type.name), "\" cannot name a file"));
    problems->Require(type.num_partitions >= 1,
                      absl::StrCat("entity type ", type.name, " needs at least 1 partition"));
  }
  std::set<std::string> names;
  for (const DatasetSchema::Relation& relation : schema.relations) {
    problems->Require(relation.lhs >= 0 && relation.lhs < num_types && relation.rhs >= 0 &&
                          relation.rhs < num_types,
                      absl::StrCat("relation ", relation.name, " has an unknown entity type"));
    problems->Require(schema.dynamic_relations || names.insert(relation.name).second,
                      absl::StrCat("relation ", relation.name, " is there twice"));
  }
}

void CheckFormat(const ImportOptions& options, Problems* problems) {
  const LineFormat& format = options.parser.format;
  constexpr const char* kFlags[] = {"--lhs-col", "--rhs-col", "--rel-col", "--weight-col"};
  for (int f = 0; f < kNumEdgeFields; ++f) {
    const int column = format.columns[f];
    const bool optional = f >= static_cast<int>(EdgeField::kRel);
    problems->Require(
        (column >= 0 && column <= kMaxColumn) || (optional && column == LineFormat::kNoColumn),
        absl::StrCat(kFlags[f], " is ", column, ", must be 0 to ", kMaxColumn));
    for (int other = 0; other < f; ++other) {
      problems->Require(column == LineFormat::kNoColumn || format.columns[other] != column,
                        absl::StrCat(kFlags[other], " and ", kFlags[f], " are both ", column));
    }
  }
  const char delimiter = format.delimiter;
  problems->Require(delimiter != '\n' && delimiter != '\r' && delimiter > 0 &&
                        !(format.quotes && delimiter == '"'),
                    "--delimiter must be one ASCII character and no line end (or quote, in CSV)");
  const char feature_delimiter = options.feature_delimiter;
  problems->Require(
      !options.schema.featurized() ||
          (feature_delimiter > 0 && feature_delimiter != '\n' && feature_delimiter != '\r' &&
           (feature_delimiter != delimiter || format.quotes)),
      "--feature-delimiter must be one ASCII character, no line end and not the "
      "--delimiter between the columns");
  problems->Require(
      !options.schema.dynamic_relations || format.column(EdgeField::kRel) != LineFormat::kNoColumn,
      "dynamic_relations needs --rel-col");
}

}  // namespace

absl::Status CheckImportOptions(const ImportOptions& options) {
  Problems problems;
  CheckSchema(options.schema, &problems);
  if (!problems.ToStatus().ok()) return problems.ToStatus();
  CheckFormat(options, &problems);
  problems.Require(!options.entity_path.empty(), "the configuration has no entity_path");
  problems.Require(
      !options.inputs.empty() && options.inputs.size() == options.edge_paths.size(),
      absl::StrCat(options.inputs.size(), options.inputs.size() == 1 ? " input" : " inputs",
                   " for the ", options.edge_paths.size(), " edge_paths of the configuration (",
                   absl::StrJoin(options.edge_paths, ", "),
                   "); give one input for each, in their order"));
  problems.Require(
      std::count_if(options.inputs.begin(), options.inputs.end(), IsStandardInput) <= 1,
      "only one input can be - (standard input)");
  std::set<std::filesystem::path> folders;
  for (const std::string& edge_path : options.edge_paths) {
    // With and without a slash at the end.
    const std::filesystem::path folder = std::filesystem::path(edge_path + "/.").lexically_normal();
    problems.Require(folders.insert(folder).second,
                     absl::StrCat("edge_paths: ", edge_path, " is there twice"));
  }
  const int64_t num_buckets =
      int64_t{options.schema.NumPartitions(Side::kLhs)} * options.schema.NumPartitions(Side::kRhs);
  problems.Require(num_buckets <= kMaxBuckets,
                   absl::StrCat("the partitions make ", num_buckets, " buckets, at most ",
                                kMaxBuckets, " are possible"));
  problems.Require(options.rare.entity_min_count >= 0, "--entity-min-count is negative");
  problems.Require(options.rare.relation_min_count >= 0, "--relation-min-count is negative");
  problems.Require(options.max_bad_lines >= 0, "--max-bad-lines is negative");
  problems.Require(options.threads >= 1, "threads must be at least 1");
  problems.Require(options.memory_bytes >= kMinMemoryBytes, "--memory must be at least 64M");
  return problems.ToStatus();
}

std::vector<std::pair<std::string, std::string>> ImportSettings(const ImportOptions& options) {
  std::vector<std::pair<std::string, std::string>> settings = SchemaSettings(options.schema);
  const LineFormat& format = options.parser.format;
  const auto add = [&](const char* flag, std::string value) {
    settings.emplace_back(flag, std::move(value));
  };
  const auto column = [&](EdgeField field) {
    const int c = format.column(field);
    return c == LineFormat::kNoColumn ? std::string("none") : absl::StrCat(c);
  };
  const auto on_off = [](bool on) { return std::string(on ? "on" : "off"); };
  add("--lhs-col", column(EdgeField::kLhs));
  add("--rhs-col", column(EdgeField::kRhs));
  add("--rel-col", column(EdgeField::kRel));
  add("--weight-col", column(EdgeField::kWeight));
  add("--format", format.quotes ? "csv" : "tsv");
  add("--delimiter", absl::CEscape(std::string(1, format.delimiter)));
  if (options.schema.featurized()) {
    add("--feature-delimiter", absl::CEscape(std::string(1, options.feature_delimiter)));
  }
  add("--skip-header", on_off(options.parser.skip_header));
  add("--skip-unknown-relations", on_off(options.parser.skip_unknown_relations));
  add("--dedupe", on_off(options.drop_duplicates));
  add("--entity-min-count", absl::StrCat(std::max<int64_t>(1, options.rare.entity_min_count)));
  add("--relation-min-count", absl::StrCat(std::max<int64_t>(1, options.rare.relation_min_count)));
  add("--pbg-compatible", on_off(options.pbg_compatible));
  return settings;
}

}  // namespace weft
