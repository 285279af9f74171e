// weft export: entities, relations and operator parameters for other programs.
#include <CLI/App.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/checkpoint_loader.h"
#include "cli/checkpoint_options.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "graph/entity_files.h"
#include "graph/export/npy_writer.h"
#include "graph/export/text_tables.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"
#include "services/trainer/model/model_parameters.h"

namespace weft::cli {
namespace {

struct ExportOptions {
  Checkpoint::Options checkpoint;
  std::string format;
  std::string out;
};

// Where the vectors of one entity type go.
class EntitySink {
 public:
  virtual ~EntitySink() = default;
  virtual absl::Status Add(const std::string& name, std::span<const float> row) = 0;
  virtual absl::Status Finish() = 0;
};

class TsvEntities : public EntitySink {
 public:
  explicit TsvEntities(std::unique_ptr<TsvWriter> file) : file_(std::move(file)) {}
  absl::Status Add(const std::string& name, std::span<const float> row) override {
    const std::string_view key = name;
    return file_->Add({&key, 1}, row);
  }
  absl::Status Finish() override { return file_->Finish(); }

 private:
  const std::unique_ptr<TsvWriter> file_;
};

class Word2VecEntities : public EntitySink {
 public:
  Word2VecEntities(std::unique_ptr<Word2VecWriter> file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  absl::Status Add(const std::string& name, std::span<const float> row) override {
    return file_->Add(name, row);
  }
  absl::Status Finish() override {
    WEFT_RETURN_IF_ERROR(file_->Finish());
    if (file_->changed_names() > 0) {
      std::cout << path_ << ": white space became _ in " << FormatCount(file_->changed_names())
                << " names\n";
    }
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<Word2VecWriter> file_;
  const std::string path_;
};

class NpyEntities : public EntitySink {
 public:
  NpyEntities(std::unique_ptr<NpyWriter> file, std::unique_ptr<NamesWriter> names)
      : file_(std::move(file)), names_(std::move(names)) {}
  absl::Status Add(const std::string& name, std::span<const float> row) override {
    WEFT_RETURN_IF_ERROR(names_->Add(name));
    return file_->Add(row);
  }
  absl::Status Finish() override {
    WEFT_RETURN_IF_ERROR(names_->Finish());
    return file_->Finish();
  }

 private:
  const std::unique_ptr<NpyWriter> file_;
  const std::unique_ptr<NamesWriter> names_;
};

// An operator's parameter, taken from its public name.
struct OperatorParameter {
  const Parameter* parameter = nullptr;
  RelationTypeId relation = 0;
  std::string side;
  std::string name;
};

// Those of relations/N/operator/SIDE/NAME, by relation.
std::vector<OperatorParameter> OperatorParameters(const ParameterSet& parameters) {
  std::vector<OperatorParameter> found;
  for (const Parameter& parameter : parameters.all()) {
    const std::vector<std::string> parts = absl::StrSplit(parameter.name, '/');
    OperatorParameter p{&parameter, 0, "", ""};
    if (parts.size() != 5 || parts[0] != "relations" || !absl::SimpleAtoi(parts[1], &p.relation)) {
      continue;
    }
    p.side = parts[3];
    p.name = parts[4];
    found.push_back(std::move(p));
  }
  std::ranges::stable_sort(found, {}, &OperatorParameter::relation);
  return found;
}

class Exporter {
 public:
  Exporter(const Checkpoint& checkpoint, const ExportOptions& options)
      : checkpoint_(checkpoint), options_(options) {}

  absl::Status Run() {
    WEFT_ASSIGN_OR_RETURN(parameters_, checkpoint_.ReadParameters());
    WEFT_ASSIGN_OR_RETURN(relation_names_, checkpoint_.RelationNames());
    WEFT_RETURN_IF_ERROR(MakeDirectories(options_.out));
    for (size_t t = 0; t < checkpoint_.config().entities.size(); ++t) {
      WEFT_RETURN_IF_ERROR(ExportEntities(static_cast<EntityTypeId>(t)));
    }
    return options_.format == "npy" ? ExportRelationsAsNpy() : ExportRelationsAsTsv();
  }

 private:
  std::string Path(std::string_view name) const {
    return absl::StrCat(options_.out, "/", absl::string_view(name.data(), name.size()));
  }

  absl::StatusOr<std::unique_ptr<EntitySink>> OpenSink(const std::string& type, int64_t count,
                                                       int64_t dimension, std::string* path) {
    const std::string stem = absl::StrCat("entities_", type);
    if (options_.format == "tsv") {
      *path = Path(stem + ".tsv");
      WEFT_ASSIGN_OR_RETURN(auto file, TsvWriter::Create(*path));
      return std::make_unique<TsvEntities>(std::move(file));
    }
    if (options_.format == "word2vec") {
      *path = Path(stem + ".vec");
      WEFT_ASSIGN_OR_RETURN(auto file, Word2VecWriter::Create(*path, count, dimension));
      return std::make_unique<Word2VecEntities>(std::move(file), *path);
    }
    *path = Path(stem + ".npy");
    const int64_t shape[] = {count, dimension};
    WEFT_ASSIGN_OR_RETURN(auto file, NpyWriter::Create(*path, shape));
    WEFT_ASSIGN_OR_RETURN(auto names, NamesWriter::Create(Path(stem + ".json")));
    return std::make_unique<NpyEntities>(std::move(file), std::move(names));
  }

  absl::Status ExportEntities(EntityTypeId type) {
    const std::string& type_name = checkpoint_.config().entities[type].name;
    const std::vector<int64_t>& counts = checkpoint_.entity_counts()[type];
    int64_t total = 0;
    for (const int64_t count : counts) total += count;
    if (total == 0) return absl::OkStatus();
    const int64_t dimension = checkpoint_.config().EntityDimension(type);
    const Parameter* global = parameters_.Find(GlobalEmbeddingName(type_name));

    std::string path;
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<EntitySink> sink,
                          OpenSink(type_name, total, dimension, &path));
    ProgressReporter progress({.title = type_name, .unit = "entities", .total = total});
    std::vector<float> row(static_cast<size_t>(dimension));
    for (size_t p = 0; p < counts.size(); ++p) {
      const PartitionKey key{type, static_cast<PartitionId>(p)};
      if (counts[p] == 0) continue;
      WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, checkpoint_.EntityNames(key));
      WEFT_RETURN_IF_ERROR(checkpoint_.VisitEmbeddings(
          key, [&](int64_t first, std::span<const float> rows) -> absl::Status {
            const auto count = static_cast<int64_t>(rows.size()) / dimension;
            for (int64_t i = 0; i < count; ++i) {
              const auto from = rows.subspan(static_cast<size_t>(i * dimension), row.size());
              std::ranges::copy(from, row.begin());
              if (global != nullptr) {
                for (size_t k = 0; k < row.size(); ++k) row[k] += global->values.data()[k];
              }
              WEFT_RETURN_IF_ERROR(sink->Add(names[static_cast<size_t>(first + i)], row));
            }
            progress.Add(count);
            return absl::OkStatus();
          }));
    }
    WEFT_RETURN_IF_ERROR(sink->Finish());
    progress.Finish();
    std::cout << path << ": " << FormatCount(total) << " vectors of dimension " << dimension
              << "\n";
    return absl::OkStatus();
  }

  std::string OperatorName(RelationTypeId relation) const {
    return checkpoint_.spec().relation(relation).operator_name;
  }

  // One relation's share of a parameter: all of it, or its row when relations are dynamic.
  std::span<const float> RowOf(const OperatorParameter& p, RelationTypeId relation) const {
    return checkpoint_.spec().dynamic() ? p.parameter->values.row(relation)
                                        : p.parameter->values.span();
  }
  std::vector<int64_t> ShapeOf(const OperatorParameter& p) const {
    std::vector<int64_t> shape = p.parameter->shape;
    if (checkpoint_.spec().dynamic()) shape.erase(shape.begin());
    return shape;
  }

  // NAME, SIDE, OPERATOR, PARAMETER, SHAPE, values: the columns of PBG's export_to_tsv.
  absl::Status ExportRelationsAsTsv() {
    const std::string path = Path("relations.tsv");
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<TsvWriter> file, TsvWriter::Create(path));
    int64_t rows = 0;
    for (const OperatorParameter& p : OperatorParameters(parameters_)) {
      const std::string shape = absl::StrJoin(ShapeOf(p), "x");
      const RelationTypeId begin = checkpoint_.spec().dynamic() ? 0 : p.relation;
      const auto end = checkpoint_.spec().dynamic()
                           ? static_cast<RelationTypeId>(relation_names_.size())
                           : p.relation + 1;
      const std::string op = OperatorName(begin);
      for (RelationTypeId r = begin; r < end; ++r) {
        const std::string_view keys[] = {relation_names_[static_cast<size_t>(r)], p.side, op,
                                         p.name, shape};
        WEFT_RETURN_IF_ERROR(file->Add(keys, RowOf(p, r)));
        ++rows;
      }
    }
    WEFT_RETURN_IF_ERROR(file->Finish());
    std::cout << path << ": " << FormatCount(rows) << " operator parameters\n";
    return absl::OkStatus();
  }

  // Parameters of one side, name and shape stand in one array, a row a relation; relations.json
  // says which row.
  absl::Status ExportRelationsAsNpy() {
    struct Array {
      std::string side;
      std::string name;
      std::vector<int64_t> shape;
      std::vector<std::span<const float>> rows;
    };
    std::map<std::string, Array> arrays;  // by file name
    nlohmann::ordered_json index;
    index["comparator"] = checkpoint_.config().comparator;
    index["bias"] = checkpoint_.config().bias;
    index["dynamic_relations"] = checkpoint_.spec().dynamic();
    nlohmann::ordered_json& relations = index["relations"] = nlohmann::ordered_json::array();
    const auto num_relations = static_cast<RelationTypeId>(relation_names_.size());
    for (RelationTypeId r = 0; r < num_relations; ++r) {
      const RelationSpec& spec = checkpoint_.spec().relation(r);
      relations.push_back({{"name", relation_names_[static_cast<size_t>(r)]},
                           {"lhs", checkpoint_.spec().entity_types[spec.lhs].name},
                           {"rhs", checkpoint_.spec().entity_types[spec.rhs].name},
                           {"operator", spec.operator_name},
                           {"parameters", nlohmann::ordered_json::array()}});
    }
    for (const OperatorParameter& p : OperatorParameters(parameters_)) {
      const std::vector<int64_t> shape = ShapeOf(p);
      const std::string file =
          absl::StrCat("relations_", p.side, "_", p.name, "_", absl::StrJoin(shape, "x"), ".npy");
      Array& array = arrays[file];
      array.shape = shape;
      const bool dynamic = checkpoint_.spec().dynamic();
      const RelationTypeId begin = dynamic ? 0 : p.relation;
      const RelationTypeId end = dynamic ? num_relations : p.relation + 1;
      for (RelationTypeId r = begin; r < end; ++r) {
        relations[static_cast<size_t>(r)]["parameters"].push_back(
            {{"side", p.side}, {"name", p.name}, {"file", file}, {"row", array.rows.size()}});
        array.rows.push_back(RowOf(p, r));
      }
    }
    for (const auto& [name, array] : arrays) {
      std::vector<int64_t> shape = array.shape;
      shape.insert(shape.begin(), static_cast<int64_t>(array.rows.size()));
      WEFT_ASSIGN_OR_RETURN(const auto file, NpyWriter::Create(Path(name), shape));
      for (const std::span<const float> row : array.rows) WEFT_RETURN_IF_ERROR(file->Add(row));
      WEFT_RETURN_IF_ERROR(file->Finish());
      std::cout << Path(name) << ": [" << absl::StrJoin(shape, ", ") << "]\n";
    }
    WEFT_RETURN_IF_ERROR(WriteFileAtomically(Path("relations.json"), index.dump(2) + "\n"));
    std::cout << Path("relations.json") << ": " << FormatCount(num_relations) << " relations\n";
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  const ExportOptions& options_;
  ParameterSet parameters_;
  std::vector<std::string> relation_names_;
};

int Export(const ExportOptions& options) {
  const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint("export", options.checkpoint);
  if (!checkpoint.ok()) return Fail("export", checkpoint.status(), /*usage=*/true);
  const absl::Status status = Exporter(*checkpoint, options).Run();
  return status.ok() ? 0 : Fail("export", status);
}

}  // namespace

void AddExportCommand(CLI::App& app, Action* action) {
  CLI::App* const command =
      app.add_subcommand("export", "Write vectors and operator parameters for other programs");
  const auto options = std::make_shared<ExportOptions>();
  AddCheckpointOptions(*command, &options->checkpoint);
  command
      ->add_option("--to", options->format,
                   "tsv, npy or word2vec. Vectors have their entity type's global embedding added.")
      ->required()
      ->check(CLI::IsMember({"tsv", "npy", "word2vec"}));
  command->add_option("-o,--out", options->out, "Folder to write into")
      ->required()
      ->type_name("DIR");
  command->footer(
      "Example:\n"
      "  weft export model --to tsv -o exported\n");
  command->callback([options, action] { *action = [options] { return Export(*options); }; });
}

}  // namespace weft::cli
