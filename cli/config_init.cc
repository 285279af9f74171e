#include "cli/config_init.h"

#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/config_proposal.h"
#include "cli/data_sketch.h"
#include "cli/progress.h"
#include "cli/report_file.h"
#include "cli/shell_word.h"
#include "graph/import/byte_source.h"
#include "services/common/status_macros.h"

namespace weft::cli {
namespace {

// Enough to see relations and columns, little enough to be looked at within a second.
constexpr size_t kSampleBytes = size_t{8} << 20;

struct InitOptions {
  std::string data;
  std::string out;
  std::string folder;
  std::string entities;  // "user=4,item"
  bool force = false;
};

// The beginning of an input, decompressed.
struct Sample {
  std::string text;
  bool whole = false;
  double share = 1;  // of the input
};

absl::StatusOr<Sample> ReadSample(const std::string& input) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, ByteSource::Open(input));
  Sample sample;
  sample.text.resize(kSampleBytes);
  size_t size = 0;
  while (size < kSampleBytes && !sample.whole) {
    WEFT_ASSIGN_OR_RETURN(const size_t read,
                          source->Read(sample.text.data() + size, kSampleBytes - size));
    size += read;
    sample.whole = read == 0;
  }
  sample.text.resize(size);
  const double total = static_cast<double>(source->total_bytes());
  if (!sample.whole && total > 0) {
    sample.share = static_cast<double>(source->digest().bytes) / total;
  }
  return sample;
}

// What to call a data set: "/data/wiki.tsv.gz" -> "wiki", "wiki/train.txt" -> "wiki".
std::string DataSetName(const std::string& input) {
  if (IsStandardInput(input)) return "data";
  const std::filesystem::path path = std::filesystem::absolute(input);
  std::string name = path.filename().string();
  name = name.substr(0, name.find('.', 1));
  for (const char* part : {"train", "edges", "triples", "data"}) {
    if (name == part && path.parent_path().has_filename()) return path.parent_path().filename();
  }
  return name.empty() ? "data" : name;
}

absl::StatusOr<std::vector<std::pair<std::string, int>>> ParseEntities(const std::string& text) {
  std::vector<std::pair<std::string, int>> types;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    int partitions = 1;
    if (part.find('=') != absl::string_view::npos &&
        (!absl::SimpleAtoi(halves.second, &partitions) || partitions < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--entities: \"", part, "\" is not of the form NAME or NAME=PARTITIONS"));
    }
    types.emplace_back(std::string(halves.first), partitions);
  }
  return types;
}

int64_t MemoryBytes() { return int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)}; }

absl::Status Init(const InitOptions& options) {
  if (!options.out.empty() && !options.force && std::filesystem::exists(options.out)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.out, " exists; --force replaces it, -o names another file"));
  }
  ProposalOptions wanted;
  WEFT_ASSIGN_OR_RETURN(wanted.entities, ParseEntities(options.entities));
  WEFT_ASSIGN_OR_RETURN(const Sample sample, ReadSample(options.data));
  absl::StatusOr<DataSketch> sketch = SketchData(sample.text, sample.whole);
  if (!sketch.ok()) return Annotate(sketch.status(), InputName(options.data));

  wanted.folder = options.folder.empty() ? DataSetName(options.data) : options.folder;
  wanted.whole = sample.whole;
  wanted.num_edges =
      static_cast<int64_t>(static_cast<double>(sketch->num_edges) / std::max(sample.share, 1e-9));
  wanted.memory_bytes = MemoryBytes();
  if (sketch->num_edges == 0) {
    return absl::InvalidArgumentError(absl::StrCat(InputName(options.data), ": has no edges"));
  }
  WEFT_ASSIGN_OR_RETURN(const ConfigProposal proposal, ProposeConfig(*sketch, wanted));

  // The configuration itself may be what goes to standard output.
  std::ostream& said = options.out.empty() ? std::cerr : std::cout;
  said << InputName(options.data) << ": " << FormatCount(sketch->num_edges)
       << (sample.whole ? " edges, " : " edges in the part that was looked at, ")
       << FormatCount(sketch->num_names) << " names";
  if (sketch->rel_column >= 0) said << ", " << FormatCount(sketch->num_relations) << " relations";
  said << "\n";
  for (const std::string& reason : sketch->reasons) said << "  " << reason << "\n";
  said << "The configuration:\n";
  for (const std::string& reason : proposal.reasons) said << "  " << reason << "\n";
  if (options.out.empty()) {
    std::cout << proposal.json;
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(WriteReport(options.out, proposal.json));
  said << "Written to " << options.out << ". What comes next:\n"
       << "  weft import " << ShellWord(options.out) << " " << ShellWord(options.data) << " "
       << ImportArguments(*sketch) << "\n  weft train " << ShellWord(options.out) << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddConfigInit(CLI::App& config, Action* action) {
  CLI::App* const command = config.add_subcommand(
      "init", "Look at a file of edges and write a configuration for it, with reasons");
  const auto options = std::make_shared<InitOptions>();
  command
      ->add_option("DATA", options->data,
                   "A file of edges, one a line; .gz and .zst too; - is standard input")
      ->required();
  command->add_option("-o,--output", options->out,
                      "Where to write the configuration; standard output without it");
  command
      ->add_option("--entities", options->entities,
                   "Entity types and their partitions: all=4 for both sides, or user=4,item for "
                   "left and right")
      ->type_name("NAME[=PARTITIONS],...");
  command->add_option("--dir", options->folder,
                      "The folder for data set and model; by default named after DATA");
  command->add_flag("--force", options->force, "Replace the output if it exists");
  command->footer(
      "Example:\n"
      "  weft config init triples.tsv -o run.json\n");
  command->callback([options, action] {
    *action = [options] {
      const absl::Status status = Init(*options);
      return status.ok() ? 0 : Fail("config init", status, /*usage=*/true);
    };
  });
}

}  // namespace weft::cli
