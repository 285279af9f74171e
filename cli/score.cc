// weft score: how likely an edge is, or which entities complete it best.
#include <CLI/App.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/best_entities.h"
#include "cli/checkpoint_loader.h"
#include "cli/checkpoint_options.h"
#include "cli/commands.h"
#include "cli/delimiter.h"
#include "cli/entity_names.h"
#include "cli/progress.h"
#include "cli/report_file.h"
#include "services/common/float_block.h"
#include "services/common/nearest_key.h"
#include "services/common/status_macros.h"
#include "services/trainer/bag_index.h"
#include "services/trainer/fused/row_transform.h"

namespace weft::cli {
namespace {

struct ScoreOptions {
  Checkpoint::Options checkpoint;
  std::string lhs;
  std::string relation;
  std::string rhs;
  std::string feature_delimiter = "comma";
  int count = 10;
  std::string json_path;
};

class Scorer {
 public:
  Scorer(const Checkpoint& checkpoint, const ScoreOptions& options)
      : checkpoint_(checkpoint), options_(options) {}

  // What the user named: errors here are the user's.
  absl::Status Resolve() {
    if (options_.lhs.empty() && options_.rhs.empty()) {
      return absl::InvalidArgumentError("give --lhs, --rhs or both");
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> relations, checkpoint_.RelationNames());
    const auto relation = std::ranges::find(relations, options_.relation);
    if (relation == relations.end()) {
      return absl::NotFoundError(absl::StrCat("there is no relation \"", options_.relation, "\"",
                                              Suggestion(options_.relation, relations)));
    }
    relation_ = static_cast<RelationTypeId>(relation - relations.begin());
    for (const Side side : kSides) {
      names_.emplace_back(checkpoint_, TypeOf(side));
      const std::string& name = NameOf(side);
      if (name.empty()) continue;
      WEFT_ASSIGN_OR_RETURN(given(side), Find(&names_.back(), name));
    }
    return absl::OkStatus();
  }

  absl::Status Run() {
    WEFT_ASSIGN_OR_RETURN(parameters_, checkpoint_.ReadParameters());
    json_ = {{"lhs", nullptr}, {"relation", options_.relation}, {"rhs", nullptr}};
    for (const Side side : kSides) {
      if (!NameOf(side).empty()) json_[side == Side::kLhs ? "lhs" : "rhs"] = NameOf(side);
    }
    json_["comparator"] = checkpoint_.config().comparator;
    json_["version"] = checkpoint_.version();
    if (given(Side::kLhs).has_value() && given(Side::kRhs).has_value()) {
      WEFT_RETURN_IF_ERROR(ScoreEdge());
    } else {
      WEFT_RETURN_IF_ERROR(Complete(given(Side::kLhs).has_value() ? Side::kRhs : Side::kLhs));
    }
    if (options_.json_path.empty()) return absl::OkStatus();
    return WriteReport(options_.json_path, json_.dump(2) + "\n");
  }

 private:
  const std::string& NameOf(Side side) const {
    return side == Side::kLhs ? options_.lhs : options_.rhs;
  }
  std::optional<std::vector<EntityPosition>>& given(Side side) {
    return given_[static_cast<size_t>(side)];
  }
  EntityTypeId TypeOf(Side side) const {
    const RelationSpec& relation = checkpoint_.spec().relation(relation_);
    return side == Side::kLhs ? relation.lhs : relation.rhs;
  }
  bool IsFeaturized(Side side) const { return names_[static_cast<size_t>(side)].type().featurized; }
  // Where the entity's row is; of a featurized type, the rows of its features.
  absl::StatusOr<std::vector<EntityPosition>> Find(EntityNames* names, const std::string& name) {
    std::vector<std::string> parts = {name};
    if (names->type().featurized) {
      parts = absl::StrSplit(name, ParseDelimiter(options_.feature_delimiter), absl::SkipEmpty());
    }
    std::vector<EntityPosition> found;
    for (const std::string& part : parts) {
      WEFT_ASSIGN_OR_RETURN(found.emplace_back(), FindEntity(*names, part));
    }
    return found;
  }
  // "(a, r, ?)"
  std::string Question(Side asked) const {
    return absl::StrCat("(", asked == Side::kLhs ? "?" : options_.lhs, ", ", options_.relation,
                        ", ", asked == Side::kRhs ? "?" : options_.rhs, ")");
  }

  absl::StatusOr<RowTransform> Transform(Side side, RowRole role) const {
    return RowTransform::Make(checkpoint_.spec(), parameters_, relation_, side, role);
  }

  // The vector of the entity on `side`: its row, or the mean of its features'.
  absl::StatusOr<std::vector<float>> ReadRow(Side side) {
    const std::vector<EntityPosition>& rows = *given(side);
    const int64_t dimension = checkpoint_.spec().dimension(relation_);
    FloatBlock vectors(static_cast<int64_t>(rows.size()), dimension);
    std::vector<EntityOffset> all;
    for (size_t i = 0; i < rows.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(
          const std::vector<float> row,
          checkpoint_.ReadEmbedding({TypeOf(side), rows[i].partition}, rows[i].offset));
      std::ranges::copy(row, vectors.row(static_cast<int64_t>(i)).begin());
      all.push_back(static_cast<EntityOffset>(i));
    }
    if (IsFeaturized(side)) {
      std::vector<float> mean(static_cast<size_t>(dimension));
      MeanOfFeatures(vectors, all, checkpoint_.spec().max_norm, mean);
      return mean;
    }
    return std::vector<float>(vectors.row(0).begin(), vectors.row(0).end());
  }

  // The same, ready in `role`.
  absl::StatusOr<std::vector<float>> Ready(Side side, RowRole role) {
    WEFT_ASSIGN_OR_RETURN(const RowTransform transform, Transform(side, role));
    WEFT_ASSIGN_OR_RETURN(std::vector<float> row, ReadRow(side));
    transform.Apply(1, row.data(), transform.dimension(), row.data(), transform.dimension());
    return row;
  }

  // The score of the edge as an answer to the question for its `asked` side.
  absl::StatusOr<float> AnswerScore(Side asked) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<float> query, Ready(Opposite(asked), RowRole::kQuery));
    WEFT_ASSIGN_OR_RETURN(const std::vector<float> candidate, Ready(asked, RowRole::kCandidate));
    const auto dimension = static_cast<int64_t>(query.size());
    WEFT_ASSIGN_OR_RETURN(TileScorer scorer, TileScorer::Make(checkpoint_.spec(), dimension));
    std::vector<float> scores(static_cast<size_t>(TileScorer::kQueries * TileScorer::kCandidates));
    scorer.SetCandidates(1, candidate.data(), dimension);
    scorer.Score(1, query.data(), dimension, scores.data());
    return scores[0];
  }

  absl::Status ScoreEdge() {
    std::cout << "(" << options_.lhs << ", " << options_.relation << ", " << options_.rhs << ")\n";
    if (!checkpoint_.spec().dynamic()) {
      WEFT_ASSIGN_OR_RETURN(const float score, AnswerScore(Side::kRhs));
      std::cout << absl::StrFormat("%10.4f\n", score);
      json_["score"] = score;
      return absl::OkStatus();
    }
    // Each side has an operator of its own, so the two questions give two scores.
    for (const Side asked : {Side::kRhs, Side::kLhs}) {
      WEFT_ASSIGN_OR_RETURN(const float score, AnswerScore(asked));
      std::cout << absl::StrFormat("%10.4f", score) << "  as an answer to " << Question(asked)
                << "\n";
      json_[asked == Side::kRhs ? "score_as_rhs" : "score_as_lhs"] = score;
    }
    return absl::OkStatus();
  }

  absl::Status Complete(Side asked) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<float> query, Ready(Opposite(asked), RowRole::kQuery));
    WEFT_ASSIGN_OR_RETURN(const RowTransform transform, Transform(asked, RowRole::kCandidate));
    const int64_t dimension = transform.dimension();
    WEFT_ASSIGN_OR_RETURN(TileScorer scorer, TileScorer::Make(checkpoint_.spec(), dimension));
    const auto prepare = [&](int64_t rows, float* vectors) {
      transform.Apply(rows, vectors, dimension, vectors, dimension);
    };
    WEFT_ASSIGN_OR_RETURN(const std::vector<ScoredEntity> best,
                          BestEntities(checkpoint_, TypeOf(asked), query, prepare, scorer,
                                       options_.count, std::nullopt));
    EntityNames& names = names_[static_cast<size_t>(asked)];
    int64_t total = 0;
    for (const int64_t n : checkpoint_.entity_counts()[static_cast<size_t>(TypeOf(asked))]) {
      total += n;
    }
    std::cout << Question(asked) << ", best of " << FormatCount(total)
              << (IsFeaturized(asked) ? " features, each as an entity that has no other" : "")
              << "\n";
    json_["completions"] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < best.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(const std::string name, names.NameOf(best[i].position));
      std::cout << absl::StrFormat("%4d  %10.4f  ", i + 1, best[i].score) << name << "\n";
      json_["completions"].push_back({{"entity", name}, {"score", best[i].score}});
    }
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  const ScoreOptions& options_;
  ParameterSet parameters_;
  RelationTypeId relation_ = 0;
  std::vector<EntityNames> names_;                       // by side
  std::optional<std::vector<EntityPosition>> given_[2];  // by side
  nlohmann::ordered_json json_;
};

int Score(const ScoreOptions& options) {
  const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint("score", options.checkpoint);
  if (!checkpoint.ok()) return Fail("score", checkpoint.status(), /*usage=*/true);
  Scorer scorer(*checkpoint, options);
  if (const absl::Status status = scorer.Resolve(); !status.ok()) {
    return Fail("score", status, /*usage=*/absl::IsInvalidArgument(status));
  }
  const absl::Status status = scorer.Run();
  return status.ok() ? 0 : Fail("score", status);
}

}  // namespace

void AddScoreCommand(CLI::App& app, Action* action) {
  CLI::App* const command =
      app.add_subcommand("score", "Score an edge, or find the entities that complete it best");
  const auto options = std::make_shared<ScoreOptions>();
  AddCheckpointOptions(*command, &options->checkpoint);
  command->add_option("--lhs", options->lhs, "Left-hand entity; left out: find the best")
      ->type_name("NAME");
  command->add_option("--rel", options->relation, "Relation")->required()->type_name("NAME");
  command->add_option("--rhs", options->rhs, "Right-hand entity; left out: find the best")
      ->type_name("NAME");
  AddDelimiterOption(*command, "--feature-delimiter", &options->feature_delimiter,
                     "NAME of a featurized entity type is a list of features, as in the import's "
                     "input: what stands between them");
  command->add_option("-k", options->count, "How many completions to list")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  AddReportOption(*command, &options->json_path, "Write the result to this file, too");
  command->footer(
      "Example:\n"
      "  weft score model --lhs dog.n.01 --rel hypernym -k 5\n"
      "  weft score model --lhs words,of,a,document --rel read_by -k 5\n");
  command->callback([options, action] { *action = [options] { return Score(*options); }; });
}

}  // namespace weft::cli
