#include "cli/eval_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/progress.h"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

// ---- Text
// ----------------------------------------------------------------------------------------

constexpr int kLabelWidth = 34;

std::string Header() {
  return absl::StrFormat("%-*s%9s%12s%9s%9s%9s%9s%9s\n", kLabelWidth, "", "MRR", "mean rank",
                         "Hits@1", "Hits@3", "Hits@10", "Hits@50", "AUC");
}

std::string Row(const std::string& label, const EvaluationMetrics& metrics, TiePolicy policy) {
  const RankMetrics& r = metrics.ranks(policy);
  // AUC knows no policy: ties are half below by definition.
  const std::string auc = policy == TiePolicy::kRealistic && metrics.auc.has_value()
                              ? absl::StrFormat("%.4f", *metrics.auc)
                              : "-";
  return absl::StrFormat("%-*s%9.4f%12.1f%9.4f%9.4f%9.4f%9.4f%9s\n", kLabelWidth, label, r.mrr,
                         r.mean_rank, r.hits_at_1, r.hits_at_3, r.hits_at_10, r.hits_at_50, auc);
}

std::string ProtocolRows(const std::string& name, const SideMetrics& metrics) {
  std::string text;
  const bool two_sides = metrics.lhs.count > 0 && metrics.rhs.count > 0;
  if (two_sides) {
    absl::StrAppend(&text, Row(name + ", head", metrics.lhs, TiePolicy::kRealistic),
                    Row(name + ", tail", metrics.rhs, TiePolicy::kRealistic));
  }
  const std::string side = two_sides ? "both" : metrics.lhs.count > 0 ? "head" : "tail";
  absl::StrAppend(&text, Row(absl::StrCat(name, ", ", side), metrics.both, TiePolicy::kRealistic),
                  Row(absl::StrCat(name, ", ", side, ", ties optimistic"), metrics.both,
                      TiePolicy::kOptimistic),
                  Row(absl::StrCat(name, ", ", side, ", ties pessimistic"), metrics.both,
                      TiePolicy::kPessimistic));
  return text;
}

std::string Candidates(const EvaluationProtocol& protocol) {
  auto types = [&](auto format) { return absl::StrJoin(protocol.candidates, ", ", format); };
  const std::string counts =
      types([](std::string* out, const EvaluationProtocol::EntityType& type) {
        absl::StrAppend(out, FormatCount(type.num_entities), " of type ", type.name);
      });
  if (protocol.sampled_candidates == 0) return absl::StrCat("all entities (", counts, ")");
  return absl::StrCat("samples of ", FormatCount(protocol.sampled_candidates), " entities (of ",
                      counts, "), seed ", protocol.seed);
}

std::string Sides(const EvaluationProtocol& protocol) {
  if (protocol.sides.size() == 2) return "head and tail, and their mean";
  return protocol.sides.front() == Side::kLhs ? "head only" : "tail only";
}

std::string Filter(const EvaluationProtocol& protocol) {
  if (protocol.filters.empty()) {
    return "the evaluated edges alone (--filter adds those of training and validation)";
  }
  return absl::StrCat("the evaluated edges and ", FormatCount(protocol.num_filter_edges), " of ",
                      absl::StrJoin(protocol.filters, ", "));
}

// One line, or nothing.
std::string Unranked(const EvaluationProtocol& protocol) {
  if (protocol.unranked.empty()) return "";
  return absl::StrCat(
      "not ranked  ",
      absl::StrJoin(protocol.unranked, ", ",
                    [](std::string* out, const EvaluationProtocol::RelationSide& side) {
                      absl::StrAppend(out, side.side == Side::kLhs ? "head" : "tail", " of ",
                                      side.relation);
                    }),
      ": featurized, such entities cannot be listed\n");
}

std::string ProtocolText(const EvaluationProtocol& protocol) {
  return absl::StrCat(
      "model       ", protocol.checkpoint, ", version ", protocol.checkpoint_version, "\n",
      "edges       ", FormatCount(protocol.num_edges), " of ", absl::StrJoin(protocol.edges, ", "),
      "\n", "candidates  ", Candidates(protocol), "\n", "sides       ", Sides(protocol), "\n",
      Unranked(protocol), "raw         every other candidate counts\n",
      "filtered    candidates that make a known edge do not count; known: ", Filter(protocol), "\n",
      "ties        realistic (the mean of optimistic and pessimistic) unless named\n");
}

std::string UnseenText(const EvaluationReport& report) {
  if (!report.unseen.has_value()) {
    return absl::StrCat("\nentities never seen in training: not counted, ", report.unseen_note,
                        "\n");
  }
  const UnseenEntities& unseen = *report.unseen;
  if (unseen.num_entities == 0) return "\nentities never seen in training: none\n";
  return absl::StrCat(
      "\nentities never seen in training: ", FormatCount(unseen.num_entities), ", in ",
      FormatCount(unseen.touching.num_edges), " of the edges\n", Header(),
      Row("filtered, these edges", unseen.touching.filtered.both, TiePolicy::kRealistic),
      Row("filtered, the other edges", unseen.others.filtered.both, TiePolicy::kRealistic));
}

std::string RelationsText(std::vector<RelationMetrics> relations) {
  std::stable_sort(relations.begin(), relations.end(),
                   [](const RelationMetrics& a, const RelationMetrics& b) {
                     return a.metrics.num_edges > b.metrics.num_edges;
                   });
  size_t width = std::string("relation").size();
  for (const RelationMetrics& r : relations) width = std::max(width, r.name.size());
  std::string text =
      absl::StrFormat("\n%-*s%12s%12s%12s%12s%12s\n", static_cast<int>(width), "relation", "edges",
                      "raw MRR", "filt. MRR", "filt. H@1", "filt. H@10");
  for (const RelationMetrics& r : relations) {
    const RankMetrics& filtered = r.metrics.filtered.both.realistic;
    if (r.metrics.filtered.both.count == 0) {
      absl::StrAppendFormat(&text, "%-*s%12s%12s%12s%12s%12s\n", static_cast<int>(width), r.name,
                            FormatCount(r.metrics.num_edges), "-", "-", "-", "-");
      continue;
    }
    absl::StrAppendFormat(&text, "%-*s%12s%12.4f%12.4f%12.4f%12.4f\n", static_cast<int>(width),
                          r.name, FormatCount(r.metrics.num_edges),
                          r.metrics.raw.both.realistic.mrr, filtered.mrr, filtered.hits_at_1,
                          filtered.hits_at_10);
  }
  return text;
}

// ---- JSON
// ----------------------------------------------------------------------------------------

Json RanksJson(const RankMetrics& ranks) {
  return {{"mrr", ranks.mrr},
          {"mean_rank", ranks.mean_rank},
          {"hits_at_1", ranks.hits_at_1},
          {"hits_at_3", ranks.hits_at_3},
          {"hits_at_10", ranks.hits_at_10},
          {"hits_at_50", ranks.hits_at_50}};
}

// The realistic ranks and AUC.
Json MetricsJson(const EvaluationMetrics& metrics) {
  Json json = RanksJson(metrics.realistic);
  json["auc"] = metrics.auc.has_value() ? Json(*metrics.auc) : Json(nullptr);
  json["count"] = metrics.count;
  return json;
}

// With the ranks of the other tie policies under their names.
Json MetricsAndTiesJson(const EvaluationMetrics& metrics) {
  Json json = MetricsJson(metrics);
  json["optimistic"] = RanksJson(metrics.optimistic);
  json["pessimistic"] = RanksJson(metrics.pessimistic);
  return json;
}

Json SidesJson(const SideMetrics& metrics) {
  Json json = MetricsAndTiesJson(metrics.both);
  if (metrics.lhs.count > 0) json["lhs"] = MetricsAndTiesJson(metrics.lhs);
  if (metrics.rhs.count > 0) json["rhs"] = MetricsAndTiesJson(metrics.rhs);
  return json;
}

// A part of the edges, in short: both sides together.
Json GroupJson(const GroupMetrics& group) {
  return {{"num_edges", group.num_edges},
          {"raw", MetricsJson(group.raw.both)},
          {"filtered", MetricsJson(group.filtered.both)}};
}

Json ProtocolJson(const EvaluationProtocol& protocol) {
  Json json;
  json["checkpoint"] = protocol.checkpoint;
  json["checkpoint_version"] = protocol.checkpoint_version;
  json["edges"] = protocol.edges;
  json["num_edges"] = protocol.num_edges;
  if (protocol.sampled_candidates == 0) {
    json["candidates"] = "all";
  } else {
    json["candidates"] = {{"sampled", protocol.sampled_candidates}, {"seed", protocol.seed}};
  }
  Json counts = Json::object();
  for (const EvaluationProtocol::EntityType& type : protocol.candidates) {
    counts[type.name] = type.num_entities;
  }
  json["num_entities"] = counts;
  json["sides"] = Json::array();
  for (const Side side : protocol.sides) {
    json["sides"].push_back(side == Side::kLhs ? "lhs" : "rhs");
  }
  for (const EvaluationProtocol::RelationSide& side : protocol.unranked) {
    json["unranked"].push_back(
        {{"relation", side.relation}, {"side", side.side == Side::kLhs ? "lhs" : "rhs"}});
  }
  json["filter"] = {{"evaluated_edges", true},
                    {"edges", protocol.filters},
                    {"num_edges", protocol.num_filter_edges}};
  json["ties"] = "realistic";
  return json;
}

}  // namespace

std::string FormatEvaluation(const EvaluationReport& report) {
  return absl::StrCat(ProtocolText(report.protocol), "\n", Header(),
                      ProtocolRows("raw", report.all.raw),
                      ProtocolRows("filtered", report.all.filtered), UnseenText(report),
                      report.by_relation.empty() ? "" : RelationsText(report.by_relation));
}

std::string EvaluationToJson(const EvaluationReport& report) {
  Json json;
  json["protocol"] = ProtocolJson(report.protocol);
  json["raw"] = SidesJson(report.all.raw);
  json["filtered"] = SidesJson(report.all.filtered);
  if (report.unseen.has_value()) {
    json["unseen"] = {{"num_entities", report.unseen->num_entities},
                      {"touching", GroupJson(report.unseen->touching)},
                      {"others", GroupJson(report.unseen->others)}};
  } else {
    json["unseen"] = nullptr;
  }
  if (!report.by_relation.empty()) {
    json["by_relation"] = Json::array();
    for (const RelationMetrics& relation : report.by_relation) {
      Json entry = {{"id", relation.id}, {"name", relation.name}};
      entry.update(GroupJson(relation.metrics));
      json["by_relation"].push_back(entry);
    }
  }
  // Names come from files: bytes that are no UTF-8 are replaced rather than refused.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace weft::cli
