// The reference against what PyTorch-BigGraph computes: tests/golden/batch_step.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "services/trainer/model/model_parameters.h"
#include "services/trainer/nn/reference_factory.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::nlohmann::json;
using ::weft::testing::IsOk;

// The file's nine digits, and what is lost where the reference answers in float32.
constexpr double kTolerance = 2e-7;

using Doubles = std::vector<double>;

void ExpectNear(std::span<const float> actual, const Doubles& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (const double x : expected) {
    if (x != -1e9) largest = std::max(largest, std::abs(x));
  }
  largest = std::max(largest, 1e-6);  // where all cancels
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], kTolerance * largest) << what << "[" << i << "]";
  }
}

// All values, or the digest of them that generate.py makes.
void ExpectTensor(std::span<const float> actual, const json& expected, const std::string& what) {
  if (expected.is_array()) {
    ExpectNear(actual, expected, what);
    return;
  }
  double digest = 0;
  double magnitude = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto weight = static_cast<double>(i % 7 + 1);
    digest += weight * actual[i];
    magnitude += weight * std::abs(actual[i]);
  }
  EXPECT_NEAR(digest, expected.get<double>(), kTolerance * magnitude) << what;
}

void CopyTo(std::span<float> to, const json& from) {
  ASSERT_EQ(to.size(), from.size());
  std::ranges::copy(from.get<std::vector<float>>(), to.begin());
}

ModelSpec MakeSpec(const json& golden, const json& group, const json& options) {
  RunConfig config;
  config.dimension = golden.at("dimension");
  config.dynamic_relations = group.at("dynamic");
  config.entities = {EntityConfig(), EntityConfig()};
  config.entities[0].name = "user";
  config.entities[1].name = "item";
  const std::string featurized = options.value("featurized", "none");
  config.entities[0].featurized = featurized == "lhs" || featurized == "both";
  config.entities[1].featurized = featurized == "rhs" || featurized == "both";
  RelationConfig relation;
  relation.name = "knows";
  relation.weight = 7;
  relation.rhs = options.at("shared_table").get<bool>() ? 0 : 1;
  relation.operator_name = group.at("operator");
  const std::string negatives = options.at("negatives");
  relation.all_negs = negatives == "all";
  if (!config.dynamic_relations) config.relations.push_back(relation);
  relation.name = "likes";
  relation.weight = options.at("relation_weight");
  config.relations.push_back(relation);

  config.comparator = options.at("comparator");
  config.bias = options.at("bias");
  config.loss_fn = options.at("loss");
  config.margin = golden.at("margin");
  config.regularization_coef =
      options.at("regularized").get<bool>() ? golden.at("coef") : json(0.0);
  config.global_emb = options.at("global_emb");
  if (options.contains("max_norm")) config.max_norm = options.at("max_norm");
  config.num_batch_negs = negatives == "uniform" ? 0 : golden.at("chunk").get<int>();
  config.num_uniform_negs = negatives == "batch" ? 0 : golden.at("samples").get<int>();
  config.disable_lhs_negs = negatives == "none on lhs";
  config.disable_rhs_negs = negatives == "none on rhs";
  config.lr = golden.at("lr");
  config.relation_lr = golden.at("relation_lr");
  auto spec =
      MakeModelSpec(config, config.dynamic_relations ? golden.at("relations").get<int>() : 0);
  EXPECT_THAT(spec, IsOk());
  return *spec;
}

class GoldenCase {
 public:
  GoldenCase(const json& golden, const json& group, const json& options)
      : inputs_(group.at("inputs")),
        options_(options),
        spec_(MakeSpec(golden, group, options)),
        parameters_(MakeInitialParameters(spec_)),
        shared_(options.at("shared_table")),
        lhs_(inputs_.at("lhs").get<std::vector<EntityOffset>>()),
        rhs_(inputs_.at("rhs").get<std::vector<EntityOffset>>()),
        rel_(inputs_.at("rel").get<std::vector<RelationTypeId>>()) {
    const int64_t count = golden.at("entities");
    for (const Side side : kSides) {
      EmbeddingPartition& table = tables_[static_cast<int>(side)];
      table = EmbeddingPartition(count, golden.at("dimension"));
      CopyTo(table.embeddings.span(), inputs_.at(Key(side, "_table")));
      CopyTo(table.adagrad_sums.span(), inputs_.at(Key(side, "_sums")));
    }
    for (Parameter& p : parameters_.all()) {
      CopyTo(p.values.span(), inputs_.at("parameters").at(p.name).at("values"));
      CopyTo(p.adagrad_sums.span(), inputs_.at("parameters").at(p.name).at("sums"));
    }
    for (const Side side : kSides) {
      const std::string key = Key(side, "_bags");
      if (!spec_.featurized(rel_[0], side)) continue;
      for (const auto& bag : options.at(key).get<std::vector<std::vector<EntityOffset>>>()) {
        bags_[static_cast<int>(side)].Append(bag);
      }
      std::vector<EntityOffset>& ids = side == Side::kLhs ? lhs_ : rhs_;
      std::iota(ids.begin(), ids.end(), 0);
    }
    if (options.at("weighted")) weight_ = inputs_.at("weight").get<std::vector<float>>();
    DrawSamples();
  }

  void Check() {
    auto step = nn::ReferenceFactory(nn::Precision::kDouble).Make(spec_, &parameters_);
    ASSERT_THAT(step, IsOk());
    BatchScores scores;
    const auto stats = (*step)->Score(Batch(), negatives_, Tables(), &scores);
    ASSERT_THAT(stats, IsOk());
    CheckScores(*stats, scores);
    const auto gradients = (*step)->Gradients(Batch(), negatives_, Tables());
    ASSERT_THAT(gradients, IsOk());
    CheckGradients(*gradients);
    ASSERT_THAT((*step)->Train(Batch(), negatives_, Tables()), IsOk());
    CheckStepped();
  }

 private:
  static std::string Key(Side side, const std::string& suffix) {
    return (side == Side::kLhs ? "lhs" : "rhs") + suffix;
  }

  EdgeBatch Batch() const {
    return {lhs_,
            rhs_,
            rel_,
            weight_,
            bags_[0].empty() ? nullptr : &bags_[0],
            bags_[1].empty() ? nullptr : &bags_[1]};
  }
  BatchTables Tables() { return {View(tables_[0]), View(tables_[shared_ ? 0 : 1])}; }

  // PyTorch-BigGraph's own count takes a negative that equals its positive for a violator whenever
  // its two formulas of a distance round differently.
  static int64_t Violators(const Doubles& pos, const Doubles& neg) {
    int64_t violators = 0;
    for (size_t i = 0; i < neg.size(); ++i) {
      violators += neg[i] > pos[i * pos.size() / neg.size()] + 1e-8;
    }
    return violators;
  }

  void DrawSamples() {
    const RelationTypeId relation = spec_.dynamic() ? 0 : rel_[0];
    const auto n = static_cast<int64_t>(lhs_.size());
    const int64_t chunk_size = spec_.NegativeChunkSize(relation, n);
    for (const Side side : kSides) {
      const int64_t num_samples =
          (n + chunk_size - 1) / chunk_size * spec_.UniformNegatives(relation, side);
      auto samples = inputs_.at(Key(side, "_samples")).get<std::vector<EntityOffset>>();
      samples.resize(num_samples);
      (side == Side::kLhs ? negatives_.lhs : negatives_.rhs) = samples;
    }
  }

  void CheckScores(const BatchStats& stats, const BatchScores& scores) {
    const double loss = options_.at("loss_value");
    const double reg = options_.at("reg_value");
    EXPECT_NEAR(stats.loss, loss, 1e-8 * std::abs(loss));
    EXPECT_NEAR(stats.reg, reg, 1e-8 * std::abs(reg));
    EXPECT_EQ(stats.count, static_cast<int64_t>(lhs_.size()));
    EXPECT_EQ(stats.violators_lhs, Violators(options_.at("lhs_pos"), options_.at("lhs_neg")));
    EXPECT_EQ(stats.violators_rhs, Violators(options_.at("rhs_pos"), options_.at("rhs_neg")));
    ExpectNear(scores.lhs_pos, options_.at("lhs_pos"), "lhs_pos");
    ExpectNear(scores.rhs_pos, options_.at("rhs_pos"), "rhs_pos");
    ExpectNear(scores.lhs_neg, options_.at("lhs_neg"), "lhs_neg");
    ExpectNear(scores.rhs_neg, options_.at("rhs_neg"), "rhs_neg");
  }

  void CheckGradients(const BatchGradients& gradients) {
    const int64_t d = tables_[0].dimension();
    const auto whole = [&](const BatchGradients::Rows& rows) {
      std::vector<float> table(tables_[0].embeddings.size());
      for (size_t i = 0; i < rows.offsets.size(); ++i) {
        std::copy_n(rows.values.begin() + i * d, d, table.begin() + rows.offsets[i] * d);
      }
      return table;
    };
    ExpectNear(whole(gradients.lhs), options_.at("lhs_gradient"), "lhs gradient");
    if (!shared_) ExpectNear(whole(gradients.rhs), options_.at("rhs_gradient"), "rhs gradient");
    for (const auto& [name, expected] : options_.at("gradients").items()) {
      const auto found = gradients.parameters.find(name);
      if (found == gradients.parameters.end()) {
        EXPECT_TRUE(std::ranges::all_of(expected, [](const json& x) { return x == 0; })) << name;
        continue;
      }
      ExpectNear(found->second, expected, name);
    }
  }

  void CheckStepped() {
    for (const Side side : kSides) {
      if (side == Side::kRhs && shared_) continue;
      const EmbeddingPartition& table = tables_[static_cast<int>(side)];
      ExpectTensor(table.embeddings.span(), options_.at(Key(side, "_table_after")), "table");
      ExpectTensor(table.adagrad_sums.span(), options_.at(Key(side, "_sums_after")), "sums");
    }
    for (const auto& [name, expected] : options_.at("parameters_after").items()) {
      const Parameter* p = parameters_.Find(name);
      ASSERT_NE(p, nullptr) << name;
      ExpectTensor(p->values.span(), expected.at("values"), name);
      ExpectTensor(p->adagrad_sums.span(), expected.at("sums"), name + " sums");
    }
  }

  const json& inputs_;
  const json& options_;
  const ModelSpec spec_;
  ParameterSet parameters_;
  const bool shared_;
  EmbeddingPartition tables_[2];
  std::vector<EntityOffset> lhs_;
  std::vector<EntityOffset> rhs_;
  std::vector<RelationTypeId> rel_;
  std::vector<float> weight_;
  FeatureBags bags_[2];
  SampledNegatives negatives_;
};

// Checks all cases of a golden file, and counts them.
void CheckGolden(const std::string& name, int expected_cases) {
  std::ifstream file(WEFT_SOURCE_DIR "/tests/golden/batch_step/" + name);
  ASSERT_TRUE(file.is_open()) << name;
  const json golden = json::parse(file);

  int num_cases = 0;
  for (const json& group : golden.at("groups")) {
    for (const json& options : group.at("cases")) {
      SCOPED_TRACE(group.at("operator").get<std::string>() +
                   (group.at("dynamic") ? " dynamic, " : " static, ") +
                   options.at("comparator").get<std::string>() + ", " +
                   options.at("loss").get<std::string>() + ", " +
                   options.at("negatives").get<std::string>() + ", " +
                   options.value("by_hand", ""));
      GoldenCase(golden, group, options).Check();
      ++num_cases;
    }
  }
  EXPECT_EQ(num_cases, expected_cases);
}

TEST(ReferenceGoldenTest, ComputesWhatPyTorchBigGraphDoes) { CheckGolden("golden.json", 162); }

TEST(ReferenceGoldenTest, ComputesFeaturizedSidesAsPyTorchBigGraphDoes) {
  CheckGolden("featurized.json", 48);
}

}  // namespace
}  // namespace weft
