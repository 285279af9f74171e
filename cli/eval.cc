// weft eval: ranks edges against all entities, and says by which protocol.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/checkpoint_options.h"
#include "cli/checkpoint_tables.h"
#include "cli/commands.h"
#include "cli/eval_edges.h"
#include "cli/eval_report.h"
#include "cli/progress.h"
#include "cli/reference_hook.h"
#include "cli/report_file.h"
#include "graph/dataset_manifest.h"
#include "services/common/featurized_relations.h"
#include "services/common/status_macros.h"
#include "services/trainer/bag_index.h"
#include "services/trainer/edge_filter.h"
#include "services/trainer/ranking.h"

namespace weft::cli {
namespace {

// Tables of up to so many bytes together are kept in memory.
constexpr int64_t kTableCacheBytes = int64_t{4} << 30;

struct EvalFlags {
  Checkpoint::Options checkpoint;
  std::vector<std::string> edges;
  std::vector<std::string> filters;
  std::string candidates = "all";
  bool by_relation = false;
  int threads = 0;
  std::string json;
};

// 0: all.
absl::StatusOr<int64_t> ParseCandidates(const std::string& text) {
  if (text == "all") return 0;
  int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--candidates is \"", text,
                     "\"; it is `all` or how many entities a sample has, at least 1"));
  }
  return count;
}

// The sides that can be asked for, of some relation at least.
std::vector<Side> SidesOf(const RunConfig& config) {
  std::vector<Side> sides;
  for (const Side side : kSides) {
    if (side == Side::kLhs ? config.disable_lhs_negs : config.disable_rhs_negs) continue;
    const std::vector<uint8_t> featurized = FeaturizedRelations(config, side);
    if (featurized.empty() || std::ranges::find(featurized, 0) != featurized.end()) {
      sides.push_back(side);
    }
  }
  return sides;
}

// What ranking sees: entities of featurized types with a vector each, the mean of their features'.
class PooledTables final : public PartitionReader {
 public:
  // All must outlive this object.
  PooledTables(PartitionReader* tables, const RunConfig& config, const BagIndex& bags)
      : tables_(tables), config_(config), bags_(bags) {}

  absl::StatusOr<std::shared_ptr<const FloatBlock>> Read(PartitionKey key) override {
    if (!config_.entities[key.entity_type].featurized) return tables_->Read(key);
    std::shared_ptr<const FloatBlock>& pooled = pooled_[key.entity_type];
    if (pooled == nullptr) {
      WEFT_ASSIGN_OR_RETURN(pooled, Pool(key.entity_type));
    }
    return pooled;
  }

 private:
  absl::StatusOr<std::shared_ptr<const FloatBlock>> Pool(EntityTypeId type) {
    const FeatureBags& bags = bags_.bags(type);
    const auto max_norm = static_cast<float>(config_.max_norm.value_or(0));
    const auto means = std::make_shared<FloatBlock>(bags.size(), config_.EntityDimension(type));
    for (PartitionId p = 0; p < config_.entities[type].num_partitions; ++p) {
      WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const FloatBlock> features,
                            tables_->Read({type, p}));
      for (int64_t i = 0; i < bags.size(); ++i) {
        if (bags_.partitions(type)[static_cast<size_t>(i)] != p) continue;
        MeanOfFeatures(*features, bags[i], max_norm, means->row(i));
      }
    }
    return means;
  }

  PartitionReader* const tables_;
  const RunConfig& config_;
  const BagIndex& bags_;
  std::map<EntityTypeId, std::shared_ptr<const FloatBlock>> pooled_;
};

// The first of `paths` that is no folder; empty when all are.
std::string FirstMissing(const std::vector<std::string>& paths) {
  std::error_code ignored;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path, ignored)) return path;
  }
  return "";
}

bool NeedsReference(const RunConfig& config, const ModelSpec& spec) {
  return config.compute == Compute::kReference || spec.comparator == Comparator::kCustom ||
         std::ranges::any_of(spec.relations,
                             [](const RelationSpec& r) { return r.op == Operator::kCustom; });
}

// One evaluation: reads, ranks, summarizes.
class Evaluation {
 public:
  Evaluation(const Checkpoint& checkpoint, const EvalFlags& flags, int64_t sampled_candidates)
      : checkpoint_(checkpoint),
        config_(checkpoint.config()),
        spec_(checkpoint.spec()),
        flags_(flags),
        entities_(checkpoint.entity_counts()),
        sides_(SidesOf(config_)),
        bags_(config_.entities.size()),
        seen_(entities_) {
    EvaluationProtocol& protocol = report_.protocol;
    protocol.checkpoint = config_.checkpoint_path;
    protocol.checkpoint_version = checkpoint.version();
    protocol.edges = flags.edges;
    protocol.filters = flags.filters;
    protocol.sampled_candidates = sampled_candidates;
    protocol.seed = config_.seed.value_or(0);
    protocol.sides = sides_;
    for (size_t r = 0; r < spec_.relations.size(); ++r) {
      for (const Side side : kSides) {
        if (!spec_.featurized(static_cast<RelationTypeId>(r), side)) continue;
        protocol.unranked.push_back({spec_.relations[r].name, side});
      }
    }
  }

  absl::StatusOr<EvaluationReport> Run() {
    if (sides_.empty()) {
      return absl::FailedPreconditionError(
          "nothing can be ranked: on every side that has negatives, all entities are featurized, "
          "and such entities cannot be listed");
    }
    std::vector<std::string> relation_names;
    if (flags_.by_relation) {
      WEFT_ASSIGN_OR_RETURN(relation_names, checkpoint_.RelationNames());
    }
    WEFT_RETURN_IF_ERROR(CheckSameImport(config_.entity_path, flags_.edges));
    WEFT_RETURN_IF_ERROR(CheckSameImport(config_.entity_path, flags_.filters));
    WEFT_ASSIGN_OR_RETURN(edges_, ReadEvaluatedEdges(flags_.edges, spec_, entities_, &bags_));
    report_.protocol.num_edges = static_cast<int64_t>(edges_.size());
    const RankingQueries queries(spec_, edges_, sides_);
    NameCandidates(queries);

    // A checkpoint may have been moved away from the edges that it was trained on.
    const std::string missing = FirstMissing(config_.edge_paths);
    if (!missing.empty()) {
      report_.unseen_note = absl::StrCat("edge_paths: no folder ", missing);
    } else {
      WEFT_RETURN_IF_ERROR(CheckSameImport(config_.entity_path, config_.edge_paths));
    }
    EdgeFilter filter(queries);
    WEFT_ASSIGN_OR_RETURN(
        report_.protocol.num_filter_edges,
        ReadKnownEdges(flags_.filters,
                       missing.empty() ? config_.edge_paths : std::vector<std::string>(), spec_,
                       entities_, &bags_, &filter, &seen_));
    filter.Finish();

    WEFT_ASSIGN_OR_RETURN(counts_, Rank(queries, filter));
    for (size_t i = 0; i < edges_.size(); ++i) {
      for (const Side side : kSides) {
        counts_[i].unranked[static_cast<int>(side)] = spec_.featurized(edges_[i].rel, side);
      }
    }
    std::vector<int64_t> all(edges_.size());
    std::iota(all.begin(), all.end(), 0);
    report_.all = ComputeGroupMetrics(counts_, all, sides_);
    if (missing.empty()) report_.unseen = FindUnseen();
    if (flags_.by_relation) report_.by_relation = GroupByRelation(relation_names);
    return std::move(report_);
  }

 private:
  void NameCandidates(const RankingQueries& queries) {
    std::set<EntityTypeId> types;
    for (const RankingQuery& query : queries.queries()) types.insert(query.candidates.type);
    for (const EntityTypeId type : types) {
      report_.protocol.candidates.push_back({spec_.entity_types[type].name, entities_.count(type)});
    }
  }

  absl::StatusOr<std::vector<EdgeCounts>> Rank(const RankingQueries& queries,
                                               const EdgeFilter& filter) const {
    WEFT_ASSIGN_OR_RETURN(ParameterSet parameters, checkpoint_.ReadParameters());
    // Every entity has a vector there, featurized ones too.
    ModelSpec spec = spec_;
    for (std::vector<uint8_t>& featurized : spec.featurized_relations) featurized.clear();
    std::vector<std::vector<int64_t>> entity_counts = checkpoint_.entity_counts();
    for (size_t t = 0; t < entity_counts.size(); ++t) {
      if (!config_.entities[t].featurized) continue;
      entity_counts[t] = {bags_.bags(static_cast<EntityTypeId>(t)).size()};
    }
    const EntityIndex entities(entity_counts);
    RankingOptions options;
    options.num_threads = flags_.threads > 0 ? flags_.threads : config_.NumThreads();
    options.sampled_candidates = report_.protocol.sampled_candidates;
    options.seed = report_.protocol.seed;
    if (NeedsReference(config_, spec_)) {
      WEFT_ASSIGN_OR_RETURN(const BatchStepFactory* factory, GetReferenceFactory());
      options.make_scorer = [factory, &spec, &parameters] {
        return BatchStepRankingScorer::Make(*factory, spec, &parameters);
      };
    }
    ProgressReporter progress({.title = "eval", .unit = "scores", .total = std::nullopt});
    options.progress = [&](int64_t done, int64_t total) {
      progress.SetTotal(total);
      progress.SetDone(done);
    };
    CheckpointTables checkpoint_tables(checkpoint_, kTableCacheBytes);
    PooledTables tables(&checkpoint_tables, config_, bags_);
    absl::StatusOr<std::vector<EdgeCounts>> counts = RankEdges(
        spec, parameters, entities, &tables, queries, filter, report_.protocol.num_edges, options);
    if (counts.ok()) {
      progress.Finish();
    } else {
      progress.Abandon();
    }
    return counts;
  }

  UnseenEntities FindUnseen() const {
    std::set<std::pair<EntityTypeId, int64_t>> unseen;
    std::vector<int64_t> touching;
    std::vector<int64_t> others;
    for (size_t i = 0; i < edges_.size(); ++i) {
      const IndexedEdge& edge = edges_[i];
      const RelationSpec& relation = spec_.relation(edge.rel);
      const bool lhs_seen = seen_.Contains(spec_, edge, Side::kLhs);
      const bool rhs_seen = seen_.Contains(spec_, edge, Side::kRhs);
      if (!lhs_seen) unseen.emplace(relation.lhs, edge.lhs);
      if (!rhs_seen) unseen.emplace(relation.rhs, edge.rhs);
      (lhs_seen && rhs_seen ? others : touching).push_back(static_cast<int64_t>(i));
    }
    return {static_cast<int64_t>(unseen.size()), ComputeGroupMetrics(counts_, touching, sides_),
            ComputeGroupMetrics(counts_, others, sides_)};
  }

  std::vector<RelationMetrics> GroupByRelation(const std::vector<std::string>& names) const {
    std::map<RelationTypeId, std::vector<int64_t>> groups;
    for (size_t i = 0; i < edges_.size(); ++i) {
      groups[edges_[i].rel].push_back(static_cast<int64_t>(i));
    }
    std::vector<RelationMetrics> relations;
    for (const auto& [rel, group] : groups) {
      relations.push_back({rel, names[rel], ComputeGroupMetrics(counts_, group, sides_)});
    }
    return relations;
  }

  const Checkpoint& checkpoint_;
  const RunConfig& config_;
  const ModelSpec& spec_;
  const EvalFlags& flags_;
  const EntityIndex entities_;
  const std::vector<Side> sides_;

  BagIndex bags_;  // the evaluated edges' featurized entities
  SeenEntities seen_;
  std::vector<IndexedEdge> edges_;
  std::vector<EdgeCounts> counts_;  // one an edge
  EvaluationReport report_;
};

int Eval(const EvalFlags& flags) {
  const absl::StatusOr<int64_t> candidates = ParseCandidates(flags.candidates);
  if (!candidates.ok()) return Fail("eval", candidates.status(), /*usage=*/true);
  const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint("eval", flags.checkpoint);
  if (!checkpoint.ok()) return Fail("eval", checkpoint.status(), /*usage=*/true);
  const absl::StatusOr<EvaluationReport> report = Evaluation(*checkpoint, flags, *candidates).Run();
  if (!report.ok()) return Fail("eval", report.status());
  std::cout << FormatEvaluation(*report);
  if (!flags.json.empty()) {
    const absl::Status written = WriteReport(flags.json, EvaluationToJson(*report));
    if (!written.ok()) return Fail("eval", written);
  }
  return 0;
}

}  // namespace

void AddEvalCommand(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand(
      "eval", "Rank edges against all entities: MRR, mean rank, Hits@k, AUC, raw and filtered");
  const auto flags = std::make_shared<EvalFlags>();
  AddCheckpointOptions(*command, &flags->checkpoint);
  command->add_option("--edges", flags->edges, "Folder of the edges to evaluate; repeatable")
      ->type_name("DIR")
      ->required()
      ->expected(1)
      ->take_all();
  command
      ->add_option("--filter", flags->filters,
                   "Folder of edges known to be true, which in the filtered figures do not count "
                   "against the evaluated ones (nor do these themselves); repeatable")
      ->type_name("DIR")
      ->expected(1)
      ->take_all();
  command
      ->add_option("--candidates", flags->candidates,
                   "Rank against `all` entities, or against samples of N")
      ->type_name("all|N");
  command->add_flag("--by-relation", flags->by_relation, "Add a line for each relation");
  command->add_option("--threads", flags->threads, "0: as the configuration says")
      ->check(CLI::Range(0, 4096));
  AddReportOption(*command, &flags->json, "Write the figures to this file, too");
  command->footer(
      "Example:\n"
      "  weft eval run.json --edges data/test --filter data/train --filter data/valid\n");
  command->callback([flags, action] { *action = [flags] { return Eval(*flags); }; });
}

}  // namespace weft::cli
