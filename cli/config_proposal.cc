#include "cli/config_proposal.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/progress.h"
#include "services/common/config_json.h"
#include "services/common/run_config.h"
#include "services/common/status_macros.h"

namespace weft::cli {
namespace {

// A column's name as the name of an entity type, if it can be one.
std::string TypeName(const DataSketch& sketch, int column, const std::string& otherwise) {
  if (!sketch.has_header) return otherwise;
  std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(sketch.header[column]));
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-';
  });
  return plain ? name : otherwise;
}

class Proposer {
 public:
  Proposer(const DataSketch& sketch, const ProposalOptions& options)
      : sketch_(sketch), options_(options) {
    // Names of relations beyond the part that was seen are found by the import.
    many_relations_ = sketch_.rel_column >= 0 && (sketch_.num_relations > 1 || !options_.whole);
    dimension_ = many_relations_ ? 200 : 100;
  }

  absl::StatusOr<ConfigProposal> Run() {
    WEFT_RETURN_IF_ERROR(ChooseEntities());
    ChooseRelations();
    ChooseModel();
    ChoosePaths();
    ChooseTraining();
    proposal_.json = WriteJson(json_);
    // What the options say may still be wrong: a name with a '/', say.
    const absl::StatusOr<ConfigResult> check = ParseRunConfig(proposal_.json, "the configuration");
    if (!check.ok()) return check.status();
    return std::move(proposal_);
  }

 private:
  void Add(std::string key, JsonNode value) {
    json_.members.push_back({std::move(key), std::move(value)});
  }
  void Say(std::string reason) { proposal_.reasons.push_back(std::move(reason)); }

  absl::Status ChooseEntities() {
    std::vector<std::pair<std::string, int>> types = options_.entities;
    if (types.size() > 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--entities names ", types.size(),
          " entity types; which relation joins which of them is not in the data: name at most two "
          "(left-hand side, right-hand side), and edit the configuration"));
    }
    // With few names it may be chance that none of them is on both sides.
    constexpr int64_t kEnoughNames = 20;
    if (!types.empty()) {
      Say(types.size() == 1 ? absl::StrCat("entities: both sides are \"", types[0].first, "\".")
                            : absl::StrCat("entities: the left-hand side is \"", types[0].first,
                                           "\", the right-hand side is \"", types[1].first, "\"."));
    } else if (sketch_.bipartite() && sketch_.num_lhs_names >= kEnoughNames &&
               sketch_.num_rhs_names >= kEnoughNames) {
      types = {{TypeName(sketch_, sketch_.lhs_column, "left"), 1},
               {TypeName(sketch_, sketch_.rhs_column, "right"), 1}};
      if (types[0].first == types[1].first) types = {{"left", 1}, {"right", 1}};
      Say(absl::StrCat("entities: no name is on both sides (", FormatCount(sketch_.num_lhs_names),
                       " left, ", FormatCount(sketch_.num_rhs_names),
                       " right), so there are two types, and negatives of the right type."));
    } else {
      types = {{"all", Partitions()}};
      Say(absl::StrCat("entities: names are on both sides, so there is one type",
                       types[0].second > 1 ? absl::StrCat(", in ", types[0].second,
                                                          " partitions because its embeddings "
                                                          "would fill more than half of the memory")
                                           : "",
                       "."));
    }
    if (!options_.whole && options_.entities.empty()) {
      Say("num_partitions is 1: right while the embeddings fit into memory (entities x dimension x "
          "4 bytes); --entities NAME=PARTITIONS sets it.");
    }
    JsonNode entities = JsonNode::Object();
    for (const auto& [name, partitions] : types) {
      entities.members.push_back(
          {name, JsonNode::Object({{"num_partitions", JsonNode::Integer(int64_t{partitions})}})});
    }
    Add("entities", std::move(entities));
    lhs_ = types.front().first;
    rhs_ = types.back().first;
    return absl::OkStatus();
  }

  // So many that two of them fill at most a quarter of the memory.
  int Partitions() const {
    const double bytes = static_cast<double>(sketch_.num_names) * (dimension_ + 1) * sizeof(float);
    const double memory = static_cast<double>(options_.memory_bytes);
    if (!options_.whole || memory <= 0 || bytes < memory / 2) return 1;
    int partitions = 2;
    while (partitions < 1024 && 2 * bytes / partitions > memory / 4) partitions *= 2;
    return partitions;
  }

  void ChooseRelations() {
    std::string name = "edge";
    if (many_relations_) {
      name = "all_relations";
      Say(absl::StrCat("dynamic_relations: ", FormatCount(sketch_.num_relations),
                       options_.whole ? "" : " or more", " relations (", SomeRelations(),
                       ") share one entry; their names are collected by the import."));
    } else if (sketch_.rel_column >= 0) {
      name = sketch_.relations.front();
      Say(absl::StrCat("relations: the data has one, \"", name, "\"."));
    } else {
      Say("relations: one, as the data has no column for them.");
    }
    JsonNode relation = JsonNode::Object({{"name", JsonNode::String(name)},
                                          {"lhs", JsonNode::String(lhs_)},
                                          {"rhs", JsonNode::String(rhs_)}});
    relation.members.push_back(
        {"operator", JsonNode::String(many_relations_ ? "complex_diagonal" : "none")});
    Add("relations", JsonNode::Array({std::move(relation)}));
    if (many_relations_) Add("dynamic_relations", JsonNode::Boolean(true));
  }

  std::string SomeRelations() const {
    constexpr size_t kShown = 5;
    std::vector<std::string> names;
    for (const std::string& name : sketch_.relations) {
      if (names.size() == kShown) break;
      names.push_back(Shortened(name));
    }
    if (sketch_.num_relations > static_cast<int64_t>(names.size())) names.push_back("...");
    return absl::StrJoin(names, ", ");
  }

  void ChooseModel() {
    Add("dimension", JsonNode::Integer(int64_t{dimension_}));
    Add("global_emb", JsonNode::Boolean(false));
    Add("comparator", JsonNode::String("dot"));
    Add("loss_fn", JsonNode::String("softmax"));
    Add("lr", JsonNode::Decimal(0.1));
    if (many_relations_) {
      Say("operator complex_diagonal, comparator dot, loss_fn softmax, regularizer N3: ComplEx, a "
          "strong model of knowledge graphs; dimension 200 is 100 complex numbers.");
      Add("regularization_coef", JsonNode::Decimal(1e-3));
      Add("num_batch_negs", JsonNode::Integer(int64_t{50}));
      Add("num_uniform_negs", JsonNode::Integer(int64_t{500}));
      Say("num_uniform_negs 500: more wrong answers a question make better ranks.");
    } else {
      Say("comparator dot, loss_fn softmax, dimension 100: a good start for a graph with one "
          "relation.");
    }
  }

  void ChoosePaths() {
    Add("entity_path", JsonNode::String(options_.folder + "/entities"));
    Add("edge_paths", JsonNode::Array({JsonNode::String(options_.folder + "/edges")}));
    Add("checkpoint_path", JsonNode::String(options_.folder + "/model"));
  }

  void ChooseTraining() {
    const int64_t edges = std::max<int64_t>(1, options_.num_edges);
    const int epochs = edges < 1'000'000 ? 30 : edges < 100'000'000 ? 10 : 3;
    Add("num_epochs", JsonNode::Integer(int64_t{epochs}));
    Say(absl::StrCat("num_epochs ", epochs, ": ", options_.whole ? "" : "about ",
                     FormatCount(options_.num_edges), " edges; fewer edges need more epochs."));
    Add("eval_fraction", JsonNode::Decimal(0));
    Say("eval_fraction 0: every edge is trained. Above 0 that share is held out to watch "
        "progress.");
  }

  const DataSketch& sketch_;
  const ProposalOptions& options_;
  bool many_relations_ = false;
  int dimension_ = 0;
  std::string lhs_;
  std::string rhs_;
  JsonNode json_ = JsonNode::Object();
  ConfigProposal proposal_;
};

}  // namespace

absl::StatusOr<ConfigProposal> ProposeConfig(const DataSketch& sketch,
                                             const ProposalOptions& options) {
  if (sketch.num_edges == 0) return absl::InvalidArgumentError("the data has no edges");
  return Proposer(sketch, options).Run();
}

std::string ImportArguments(const DataSketch& sketch) {
  std::string arguments = absl::StrCat("--lhs-col ", sketch.lhs_column);
  if (sketch.rel_column >= 0) absl::StrAppend(&arguments, " --rel-col ", sketch.rel_column);
  absl::StrAppend(&arguments, " --rhs-col ", sketch.rhs_column);
  if (sketch.weight_column >= 0)
    absl::StrAppend(&arguments, " --weight-col ", sketch.weight_column);
  if (sketch.quoted) absl::StrAppend(&arguments, " --format csv");
  if (sketch.delimiter != (sketch.quoted ? ',' : '\t')) {
    absl::StrAppend(&arguments, " --delimiter '", std::string(1, sketch.delimiter), "'");
  }
  if (sketch.has_header) absl::StrAppend(&arguments, " --skip-header");
  return arguments;
}

}  // namespace weft::cli
