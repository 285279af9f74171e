#include "cli/eval_report.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "services/common/file_util.h"

namespace weft::cli {
namespace {

std::string Golden(const std::string& name) {
  const char* source = std::getenv("WEFT_SOURCE_DIR");
  return ReadFile((source == nullptr ? "." : std::string(source)) + "/tests/golden/" + name)
      .value();
}

// Three edges of two relations: ranks 1 and 2 | 1 and 4.5 | 1 and 11, raw and filtered apart.
EvaluationReport SmallReport() {
  std::vector<EdgeCounts> edges(3);
  edges[0].raw[0] = {.candidates = 10, .above = 0, .ties = 0};
  edges[0].raw[1] = {.candidates = 10, .above = 1, .ties = 0};
  edges[0].filtered[0] = {.candidates = 8, .above = 0, .ties = 0};
  edges[0].filtered[1] = {.candidates = 8, .above = 0, .ties = 0};
  edges[1].raw[0] = {.candidates = 10, .above = 0, .ties = 0};
  edges[1].raw[1] = {.candidates = 10, .above = 1, .ties = 5};
  edges[1].filtered[0] = {.candidates = 8, .above = 0, .ties = 0};
  edges[1].filtered[1] = {.candidates = 5, .above = 0, .ties = 5};
  edges[2].raw[0] = {.candidates = 10, .above = 0, .ties = 0};
  edges[2].raw[1] = {.candidates = 10, .above = 10, .ties = 0};
  edges[2].filtered[0] = {.candidates = 10, .above = 0, .ties = 0};
  edges[2].filtered[1] = {.candidates = 9, .above = 9, .ties = 0};

  EvaluationReport report;
  report.protocol.checkpoint = "model/toy";
  report.protocol.checkpoint_version = 12;
  report.protocol.edges = {"data/test"};
  report.protocol.num_edges = 3;
  report.protocol.filters = {"data/train", "data/valid"};
  report.protocol.num_filter_edges = 1234;
  report.protocol.candidates = {{"all", 11}};
  report.protocol.sides = {Side::kLhs, Side::kRhs};
  report.all = ComputeGroupMetrics(edges, std::vector<int64_t>{0, 1, 2}, kSides);
  report.unseen = UnseenEntities{1, ComputeGroupMetrics(edges, std::vector<int64_t>{2}, kSides),
                                 ComputeGroupMetrics(edges, std::vector<int64_t>{0, 1}, kSides)};
  report.by_relation = {
      {0, "likes", ComputeGroupMetrics(edges, std::vector<int64_t>{0}, kSides)},
      {3, "knows", ComputeGroupMetrics(edges, std::vector<int64_t>{1, 2}, kSides)},
  };
  return report;
}

TEST(EvalReportTest, JsonIsTheGoldenFile) {
  EXPECT_EQ(EvaluationToJson(SmallReport()), Golden("eval_report.json"));
}

TEST(EvalReportTest, TextIsTheGoldenFile) {
  EXPECT_EQ(FormatEvaluation(SmallReport()), Golden("eval_report.txt"));
}

TEST(EvalReportTest, ProtocolNamesSamplesAndTheirSeed) {
  EvaluationReport report = SmallReport();
  report.protocol.sampled_candidates = 5;
  report.protocol.seed = 7;

  EXPECT_NE(FormatEvaluation(report).find("samples of 5 entities (of 11 of type all), seed 7"),
            std::string::npos);
  EXPECT_NE(EvaluationToJson(report).find("\"sampled\": 5"), std::string::npos);
}

TEST(EvalReportTest, WithoutAFilterItSaysWhatIsFiltered) {
  EvaluationReport report = SmallReport();
  report.protocol.filters.clear();

  EXPECT_NE(FormatEvaluation(report).find("the evaluated edges alone"), std::string::npos);
}

TEST(EvalReportTest, OneSideIsNamed) {
  EvaluationReport report = SmallReport();
  report.protocol.sides = {Side::kRhs};
  std::vector<EdgeCounts> edges(1);
  edges[0].raw[1] = {.candidates = 10, .above = 1, .ties = 0};
  report.all = ComputeGroupMetrics(edges, std::vector<int64_t>{0}, report.protocol.sides);

  const std::string text = FormatEvaluation(report);

  EXPECT_NE(text.find("sides       tail only"), std::string::npos);
  EXPECT_NE(text.find("raw, tail "), std::string::npos);
  EXPECT_EQ(text.find("raw, head"), std::string::npos);
}

TEST(EvalReportTest, WithoutTrainingEdgesItSaysWhyNothingWasCounted) {
  EvaluationReport report = SmallReport();
  report.unseen.reset();
  report.unseen_note = "edge_paths: no folder data/train";

  EXPECT_NE(FormatEvaluation(report).find(
                "never seen in training: not counted, edge_paths: no folder data/train"),
            std::string::npos);
  EXPECT_NE(EvaluationToJson(report).find("\"unseen\": null"), std::string::npos);
}

TEST(EvalReportTest, BytesThatAreNoUtf8DoNotBreakTheJson) {
  EvaluationReport report = SmallReport();
  report.by_relation[0].name = "\xff\xfe";

  EXPECT_NE(EvaluationToJson(report).find("\xef\xbf\xbd"), std::string::npos);
}

}  // namespace
}  // namespace weft::cli
