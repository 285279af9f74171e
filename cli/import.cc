// weft import: files of edges become the data set that a configuration describes.
#include <sys/resource.h>

#include <CLI/App.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands.h"
#include "cli/config_options.h"
#include "cli/delimiter.h"
#include "cli/edge_upload.h"
#include "cli/progress.h"
#include "cli/reference_hook.h"
#include "cli/report_file.h"
#include "graph/import/bad_line_log.h"
#include "graph/import/importer.h"
#include "services/common/retry.h"
#include "services/common/rpc/security_flags.h"
#include "services/common/run_config.h"
#include "services/common/status_macros.h"
#include "services/lock_server/grpc_operator_client.h"

namespace weft::cli {
namespace {

struct Flags {
  std::string config;
  std::vector<std::string> overrides;
  std::string format = "tsv";
  std::string delimiter;
  std::string feature_delimiter;
  int lhs_column = 0;
  int rhs_column = 1;
  int rel_column = LineFormat::kNoColumn;
  int weight_column = LineFormat::kNoColumn;
  int64_t memory_bytes = ImportOptions().memory_bytes;
  int threads = 0;
  std::vector<std::string> held_out;
  std::string to;
  SecurityFlags security;
  std::string json;
  ImportOptions import;  // what has a flag of the same meaning goes here directly
};

ImportOptions MakeOptions(const Flags& flags, const RunConfig& config) {
  ImportOptions options = flags.import;
  options.schema = DatasetSchemaOf(config);
  options.entity_path = config.entity_path;
  options.edge_paths = config.edge_paths;
  LineFormat& format = options.parser.format;
  format.columns = {flags.lhs_column, flags.rhs_column, flags.rel_column, flags.weight_column};
  format.quotes = flags.format == "csv";
  format.delimiter = format.quotes ? ',' : '\t';
  if (!flags.delimiter.empty()) format.delimiter = ParseDelimiter(flags.delimiter);
  if (!flags.feature_delimiter.empty()) {
    options.feature_delimiter = ParseDelimiter(flags.feature_delimiter);
  }
  options.threads = flags.threads > 0 ? flags.threads : config.NumThreads();
  options.memory_bytes = flags.memory_bytes;
  return options;
}

// Takes inputs that are imported beside those of edge_paths, "NAME=FILE", into `flags` and `local`.
absl::Status AddHeldOut(Flags* flags, RunConfig* local) {
  for (const std::string& text : flags->held_out) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size() || text[0] == '.' ||
        text.find('/') < equals) {
      return absl::InvalidArgumentError(
          absl::StrCat("--held-out ", text, ": not of the form NAME=FILE"));
    }
    const std::string path =
        absl::StrCat(local->entity_path, "/edges/", absl::string_view(text).substr(0, equals));
    if (absl::c_linear_search(local->edge_paths, path)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--held-out ", text, ": ", path, " is of another input"));
    }
    local->edge_paths.push_back(path);
    flags->import.inputs.push_back(text.substr(equals + 1));
  }
  return absl::OkStatus();
}

std::string Plural(int64_t count, const char* one, const char* many) {
  return absl::StrCat(FormatCount(count), " ", count == 1 ? one : many);
}

// "12 blank lines, 3 duplicates": what did not become an edge.
std::string LeftOut(const ImportReport::Input& input) {
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const char* one, const char* many) {
    if (count > 0) parts.push_back(Plural(count, one, many));
  };
  add(input.blank_lines, "blank line", "blank lines");
  add(input.bad_lines, "bad line", "bad lines");
  add(input.unknown_relations, "line of an unknown relation", "lines of unknown relations");
  add(input.rare, "edge of rare relations or entities", "edges of rare relations or entities");
  add(input.duplicates, "duplicate", "duplicates");
  return absl::StrJoin(parts, ", ");
}

void PrintInput(const ImportReport& report, size_t i, const std::string& edge_path) {
  const ImportReport::Input& input = report.inputs[i];
  std::cout << "  " << input.name << " -> " << edge_path << ": "
            << Plural(input.edges, "edge", "edges");
  if (report.num_lhs_partitions * report.num_rhs_partitions > 1) {
    std::cout << " in " << FormatCount(input.nonempty_buckets) << " of "
              << FormatCount(int64_t{report.num_lhs_partitions} * report.num_rhs_partitions)
              << " buckets";
  }
  const std::string left_out = LeftOut(input);
  if (!left_out.empty()) std::cout << "; left out: " << left_out;
  if (input.bad_lines > 0) std::cout << " (see " << edge_path << "/" << kRejectedLinesFile << ")";
  if (i > 0 && input.new_entities > 0) {
    std::cout << "; " << Plural(input.new_entities, "entity is", "entities are")
              << " in no earlier input";
  }
  std::cout << "\n";
}

void PrintReport(const ImportReport& report, const RunConfig& config, double seconds) {
  if (report.already_imported) {
    std::cout << "already imported, nothing to do (--force imports again): "
              << Plural(report.num_edges(), "edge", "edges") << "\n";
  } else {
    std::cout << "imported " << Plural(report.num_edges(), "edge", "edges") << " in "
              << absl::StrFormat("%.2f", seconds) << " s ("
              << FormatRate(static_cast<double>(report.num_edges()) / seconds) << " edges/s)\n";
  }
  for (size_t i = 0; i < report.inputs.size(); ++i) PrintInput(report, i, config.edge_paths[i]);
  for (size_t t = 0; t < report.entities.size(); ++t) {
    const DatasetManifest::EntityCounts& type = report.entities[t];
    int64_t count = 0;
    for (const int64_t part : type.counts) count += part;
    std::cout << "  entity type " << type.type << ": "
              << (config.entities[t].featurized ? Plural(count, "feature", "features")
                                                : Plural(count, "entity", "entities"));
    if (type.counts.size() > 1) std::cout << " in " << type.counts.size() << " partitions";
    std::cout << "\n";
  }
  std::cout << "  " << Plural(report.num_relations, "relation", "relations") << "\n";
  if (report.dropped_relations > 0 || report.dropped_entities > 0) {
    std::cout << "  dropped as rare: " << Plural(report.dropped_relations, "relation", "relations")
              << ", " << Plural(report.dropped_entities, "entity", "entities") << "\n";
  }
}

int64_t PeakMemoryBytes() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

std::string ReportToJson(const ImportReport& report, const RunConfig& config, double seconds) {
  nlohmann::ordered_json root = {
      {"already_imported", report.already_imported},
      {"seconds", seconds},
      {"edges", report.num_edges()},
      {"edges_per_second",
       report.already_imported ? 0.0 : static_cast<double>(report.num_edges()) / seconds},
      {"entities", report.num_entities()},
      {"relations", report.num_relations},
      {"dropped_entities", report.dropped_entities},
      {"dropped_relations", report.dropped_relations},
      {"lhs_partitions", report.num_lhs_partitions},
      {"rhs_partitions", report.num_rhs_partitions},
      {"peak_memory_bytes", PeakMemoryBytes()},
      {"entity_types", nlohmann::ordered_json::array()},
      {"inputs", nlohmann::ordered_json::array()},
      {"warnings", report.warnings}};
  for (const DatasetManifest::EntityCounts& type : report.entities) {
    root["entity_types"].push_back({{"name", type.type}, {"partitions", type.counts}});
  }
  for (size_t i = 0; i < report.inputs.size(); ++i) {
    const ImportReport::Input& input = report.inputs[i];
    root["inputs"].push_back({{"name", input.name},
                              {"edge_path", config.edge_paths[i]},
                              {"lines", input.lines},
                              {"edges", input.edges},
                              {"blank_lines", input.blank_lines},
                              {"bad_lines", input.bad_lines},
                              {"unknown_relations", input.unknown_relations},
                              {"rare", input.rare},
                              {"duplicates", input.duplicates},
                              {"new_entities", input.new_entities},
                              {"nonempty_buckets", input.nonempty_buckets}});
  }
  return root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// The bar shows bytes where the size of the inputs is known, else edges.
class ImportProgressBar {
 public:
  void Show(const ImportProgress& progress) {
    const bool sized = progress.bytes_total > 0;
    if (reporter_ == nullptr) {
      ProgressReporter::Options options;
      options.title = "import";
      options.unit = sized ? "bytes" : "edges";
      if (sized) options.total = progress.bytes_total;
      reporter_ = std::make_unique<ProgressReporter>(options);
    }
    reporter_->SetDone(sized ? progress.bytes_read : progress.edges);
    reporter_->SetNote(absl::StrCat(std::string(progress.phase), ", ", FormatCount(progress.edges),
                                    " edges, ", FormatCount(progress.entities), " entities"));
  }
  void End() {
    if (reporter_ != nullptr) reporter_->Abandon();
  }

 private:
  std::unique_ptr<ProgressReporter> reporter_;
};

// Brings what has been imported to the cluster.
absl::Status Bring(const Flags& flags, const RunConfig& config) {
  GrpcOperatorClient::Options lock;
  lock.address = flags.to;
  lock.retry.patience = absl::Minutes(1);
  WEFT_ASSIGN_OR_RETURN(lock.security, MakeSecurityOptions(flags.security, {}));
  EdgeUploadOptions options;
  options.security = lock.security;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcOperatorClient> lock_server,
                        GrpcOperatorClient::Create(std::move(lock)));
  std::unique_ptr<ProgressReporter> progress;
  options.on_progress = [&](int64_t edges, int64_t all_edges) {
    if (progress == nullptr) {
      ProgressReporter::Options bar;
      bar.title = "upload";
      bar.unit = "edges";
      bar.total = all_edges;
      progress = std::make_unique<ProgressReporter>(bar);
    }
    progress->SetDone(edges);
  };
  CancelFlag cancel;
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<EdgeUpload> upload =
      UploadEdges(lock_server.get(), config, options, &cancel);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (progress != nullptr) progress->Abandon();
  WEFT_RETURN_IF_ERROR(upload.status());
  if (upload->already) {
    std::cout << "the cluster at " << flags.to << " has these edges already\n";
  } else {
    std::cout << "brought " << Plural(upload->edges, "edge", "edges") << " in "
              << Plural(upload->buckets, "bucket", "buckets") << " ("
              << absl::StrFormat("%.1f", static_cast<double>(upload->bytes) / 1e6)
              << " MB) to the cluster at " << flags.to << " in "
              << absl::StrFormat("%.2f", seconds.count()) << " s\n";
  }
  return absl::OkStatus();
}

int RunImport(Flags flags) {
  const absl::StatusOr<ConfigResult> config =
      LoadRunConfig(flags.config, flags.overrides, ProgramConfigOptions());
  if (!config.ok()) return Fail("import", config.status(), /*usage=*/true);
  for (const std::string& warning : config->warnings) {
    std::cerr << "weft import: warning: " << warning << "\n";
  }
  const bool for_cluster = config->config.HasClusterEdges();
  if (!flags.to.empty() && !for_cluster) {
    return Fail("import",
                absl::InvalidArgumentError(absl::StrCat(
                    "--to is for edge_paths that a cluster holds, such as cluster://train; ",
                    config->config.edge_paths[0], " is a folder")),
                /*usage=*/true);
  }
  RunConfig local = WithLocalEdges(config->config);
  if (flags.import.inputs.size() != local.edge_paths.size() && !flags.held_out.empty()) {
    return Fail("import",
                absl::InvalidArgumentError(absl::StrCat(
                    "there are ", local.edge_paths.size(), " edge_paths and ",
                    flags.import.inputs.size(), " inputs beside those that are held out")),
                /*usage=*/true);
  }
  if (absl::Status status = AddHeldOut(&flags, &local); !status.ok()) {
    return Fail("import", status, /*usage=*/true);
  }
  ImportOptions options = MakeOptions(flags, local);
  if (absl::Status status = CheckImportOptions(options); !status.ok()) {
    return Fail("import", status, /*usage=*/true);
  }

  ImportProgressBar bar;
  options.on_progress = [&](const ImportProgress& progress) { bar.Show(progress); };
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<ImportReport> report = Import(options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  bar.End();
  if (!report.ok()) return Fail("import", report.status());
  for (const std::string& warning : report->warnings) {
    std::cerr << "weft import: warning: " << warning << "\n";
  }
  PrintReport(*report, local, seconds.count());
  if (!flags.to.empty()) {
    if (absl::Status status = Bring(flags, config->config); !status.ok()) {
      return Fail("import", status);
    }
  } else if (for_cluster) {
    std::cout << "for " << absl::StrJoin(config->config.edge_paths, ", ")
              << ": `weft cluster up` takes them from here, --to ADDRESS brings them to the lock "
                 "server of a cluster\n";
  }
  if (flags.json.empty()) return 0;
  const absl::Status written =
      WriteReport(flags.json, ReportToJson(*report, local, seconds.count()));
  return written.ok() ? 0 : Fail("import", written);
}

void AddFormatFlags(CLI::App* command, Flags* flags) {
  command->add_option("-l,--lhs-col", flags->lhs_column, "Column of the left-hand entity, from 0")
      ->required()
      ->type_name("N");
  command->add_option("-r,--rhs-col", flags->rhs_column, "Column of the right-hand entity, from 0")
      ->required()
      ->type_name("N");
  command
      ->add_option("--rel-col", flags->rel_column,
                   "Column of the relation (default: every edge has the first relation)")
      ->type_name("N")
      ->default_str("");
  command
      ->add_option("--weight-col", flags->weight_column,
                   "Column of the weight, a number >= 0 (default: edges have no weights)")
      ->type_name("N")
      ->default_str("");
  command->add_option("--format", flags->format, "tsv, or csv with quotes after RFC 4180")
      ->check(CLI::IsMember({"tsv", "csv"}));
  AddDelimiterOption(*command, "--delimiter", &flags->delimiter,
                     "One character, or tab, comma, space, semicolon, pipe (default: tab, with csv "
                     "comma)");
  AddDelimiterOption(*command, "--feature-delimiter", &flags->feature_delimiter,
                     "Of featurized entity types: what stands between the features of an entity, "
                     "as --delimiter (default: comma)");
  command->add_flag("--skip-header", flags->import.parser.skip_header,
                    "Line 1 of every input holds the names of the columns");
}

void AddSelectionFlags(CLI::App* command, ImportOptions* import) {
  command
      ->add_option("--max-bad-lines", import->max_bad_lines,
                   "Leave out up to N bad lines instead of ending with the first")
      ->type_name("N");
  command->add_flag("--skip-unknown-relations", import->parser.skip_unknown_relations,
                    "Leave out lines whose relation is not in the configuration");
  command->add_flag("--dedupe", import->drop_duplicates,
                    "Keep only the first of equal edges of an input, whatever its weight");
  command
      ->add_option("--entity-min-count", import->rare.entity_min_count,
                   "Drop entities that appear less than N times, and their edges; of featurized "
                   "types, features (and entities that have no other)")
      ->type_name("N");
  command
      ->add_option("--relation-min-count,--relation-type-min-count",
                   import->rare.relation_min_count,
                   "Drop relations of less than N edges, and entities that only they have")
      ->type_name("N");
}

}  // namespace

void AddImportCommand(CLI::App& app, Action* action) {
  CLI::App* const command =
      app.add_subcommand("import", "Turn files of edges into data to train on");
  const auto flags = std::make_shared<Flags>();
  command->add_option("CONFIG", flags->config, "The configuration, JSON")->required();
  command
      ->add_option(
          "INPUT", flags->import.inputs,
          "One for each of edge_paths, in their order: a file (plain, gzip, zstd), or - for "
          "standard input")
      ->required();
  AddFormatFlags(command, flags.get());
  AddSelectionFlags(command, &flags->import);
  command
      ->add_option("--memory", flags->memory_bytes,
                   "Memory the import may use; beside the names it needs little")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE")
      ->default_str("4G");
  command->add_option("--threads", flags->threads, "Threads that parse (default: as configured)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->default_str("");
  command
      ->add_option("--held-out", flags->held_out,
                   "One more input that is not trained on, into entity_path/edges/NAME: for weft "
                   "eval; repeatable")
      ->type_name("NAME=FILE")
      ->expected(1)
      ->take_all();
  command->add_flag("--force", flags->import.force, "Replace the files of another import");
  command
      ->add_option("--to", flags->to,
                   "Bring the edges to the cluster of this lock server, host:port; for edge_paths "
                   "cluster://NAME")
      ->type_name("ADDRESS")
      ->default_str("");
  AddSecurityFlags(command, &flags->security);
  command->add_flag("--pbg-compatible", flags->import.pbg_compatible,
                    "Write files for empty buckets too when there are more than 4,096 buckets");
  AddOverrides(*command, &flags->overrides,
               "Override a key: entities.user.num_partitions=4, edge_paths=a,b");
  AddReportOption(*command, &flags->json, "Write what was done as JSON to this file");
  command->footer(
      "Example:\n"
      "  weft import run.json train.tsv valid.tsv.gz --lhs-col 0 --rel-col 1 --rhs-col 2\n"
      "  weft import run.json train.tsv --lhs-col 0 --rhs-col 1 --to 127.0.0.1:7000 --held-out "
      "test=test.tsv\n");
  command->callback([flags, action] { *action = [flags] { return RunImport(*flags); }; });
}

}  // namespace weft::cli
