#include "services/common/config_validation.h"

#include <algorithm>
#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

// A name becomes a part of file names, such as embeddings_NAME_0.v1.h5.
constexpr size_t kMaxEntityTypeName = 200;
// One message of the parameter exchange, 3 MiB, takes less than a minute then.
constexpr int64_t kMinParamBytesPerSecond = 64 << 10;

std::string EntityKey(const RunConfig& config, EntityTypeId type, absl::string_view member = "") {
  const std::string key = MemberKey("entities", config.entities[type].name);
  return member.empty() ? key : MemberKey(key, member);
}

std::string RelationKey(size_t relation, absl::string_view member) {
  return MemberKey(ElementKey("relations", relation), member);
}

EntityTypeId EntityType(const RelationConfig& relation, Side side) {
  return side == Side::kLhs ? relation.lhs : relation.rhs;
}

absl::string_view SideName(Side side) { return side == Side::kLhs ? "lhs" : "rhs"; }

class Validation {
 public:
  Validation(const RunConfig& config, ConfigProblems* problems)
      : config_(config), problems_(*problems) {}

  void Run() {
    CheckEntityTypes();
    CheckPartitions();
    CheckRelations();
    CheckEdgePaths();
    CheckNegatives();
    CheckFeaturizedNegatives();
    CheckEvaluation();
    CheckParamSync();
  }

 private:
  // Whether all of these keys are free of problems.
  template <typename... Keys>
  bool Sound(const Keys&... keys) const {
    return (!problems_.Concern(keys) && ...);
  }
  // Whether the relation's entity type on `side` is known.
  bool HasSide(size_t relation, Side side) const {
    return Sound("entities", RelationKey(relation, SideName(side)));
  }

  void CheckEntityTypes() {
    for (size_t i = 0; i < config_.entities.size(); ++i) {
      const EntityConfig& entity = config_.entities[i];
      const std::string key = EntityKey(config_, static_cast<EntityTypeId>(i));
      if (entity.name.empty()) {
        problems_.Add(key, "the name of an entity type must not be empty");
      } else if (entity.name.size() > kMaxEntityTypeName) {
        problems_.Add(key, absl::StrCat("the name of an entity type must have at most ",
                                        kMaxEntityTypeName, " bytes, has ", entity.name.size()));
      } else if (std::any_of(entity.name.begin(), entity.name.end(), [](unsigned char c) {
                   return c == '/' || c == '.' || absl::ascii_iscntrl(c);
                 })) {
        problems_.Add(key,
                      "the name of an entity type must not contain '/', '.' or control characters: "
                      "it becomes a part of file and parameter names");
      }
    }
  }

  // As in PBG: on one side, every type with more than one partition has the same number.
  void CheckPartitions() {
    for (const Side side : kSides) {
      int first = -1;
      std::vector<bool> seen(config_.entities.size());
      for (size_t r = 0; r < config_.relations.size(); ++r) {
        if (!HasSide(r, side)) continue;
        const EntityTypeId type = EntityType(config_.relations[r], side);
        const std::string key = EntityKey(config_, type, "num_partitions");
        const int count = config_.entities[type].num_partitions;
        if (seen[type] || count == 1 || !Sound(key)) continue;
        seen[type] = true;
        if (first < 0) {
          first = type;
        } else if (count != config_.entities[first].num_partitions) {
          problems_.Add(key, absl::StrCat("is ", count, ", but ", EntityKey(config_, first),
                                          " has ", config_.entities[first].num_partitions,
                                          "; all entity types on the ", SideName(side),
                                          " of relations need the same number, or 1"));
        }
      }
    }
  }

  void CheckRelations() {
    if (config_.dynamic_relations && Sound("relations") && config_.relations.size() != 1) {
      problems_.Add("dynamic_relations",
                    absl::StrCat("needs exactly one entry in relations, which stands for all "
                                 "relations of the data; there are ",
                                 config_.relations.size()));
    }
    absl::flat_hash_map<absl::string_view, size_t> names;
    for (size_t r = 0; r < config_.relations.size(); ++r) {
      const RelationConfig& relation = config_.relations[r];
      if (Sound(RelationKey(r, "name"))) {
        const auto [first, is_new] = names.try_emplace(relation.name, r);
        if (!is_new) {
          problems_.Add(RelationKey(r, "name"),
                        absl::StrCat("\"", relation.name, "\" is also the name of relations[",
                                     first->second, "]; names must differ"));
        }
      }
      CheckDimensions(r);
      CheckRegularizer(r);
    }
  }

  void CheckEdgePaths() {
    if (!Sound("edge_paths")) return;
    absl::flat_hash_set<absl::string_view> names;
    for (size_t i = 0; i < config_.edge_paths.size(); ++i) {
      const std::string& path = config_.edge_paths[i];
      const std::string key = ElementKey("edge_paths", i);
      absl::string_view name = path;
      if (absl::ConsumePrefix(&name, kClusterPathPrefix) != config_.HasClusterEdges()) {
        problems_.Add(key, absl::StrCat("is \"", path, "\" beside \"", config_.edge_paths[0],
                                        "\"; all edges are held by the cluster (cluster://NAME), "
                                        "or none"));
        continue;
      }
      if (!config_.HasClusterEdges()) continue;
      if (name.empty() || name[0] == '.' || std::any_of(name.begin(), name.end(), [](char c) {
            return !absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' &&
                   c != '.';
          })) {
        problems_.Add(key, absl::StrCat("is \"", path,
                                        "\"; the name after cluster:// consists of letters, "
                                        "digits, '-', '_' and '.', and begins with no '.'"));
      } else if (!names.insert(name).second) {
        problems_.Add(key, absl::StrCat("\"", path, "\" is there twice"));
      }
    }
  }

  void CheckDimensions(size_t r) {
    if (!HasSide(r, Side::kLhs) || !HasSide(r, Side::kRhs) || !Sound("dimension")) return;
    const RelationConfig& relation = config_.relations[r];
    if (!Sound(EntityKey(config_, relation.lhs, "dimension"),
               EntityKey(config_, relation.rhs, "dimension"))) {
      return;
    }
    const int lhs = config_.EntityDimension(relation.lhs);
    const int rhs = config_.EntityDimension(relation.rhs);
    if (lhs != rhs) {
      problems_.Add(
          ElementKey("relations", r),
          absl::StrCat("lhs ", config_.entities[relation.lhs].name, " has dimension ", lhs,
                       " and rhs ", config_.entities[relation.rhs].name, " has dimension ", rhs,
                       "; the two sides of a relation need the same"));
    } else if (Sound(RelationKey(r, "operator")) && relation.operator_name == "complex_diagonal" &&
               rhs % 2 != 0) {
      problems_.Add(RelationKey(r, "operator"),
                    absl::StrCat("complex_diagonal needs an even dimension, is ", rhs));
    }
    if (config_.bias && rhs < 2) {
      problems_.Add(ElementKey("relations", r),
                    "bias takes the first coordinate, so a dimension of at least 2 is needed");
    }
  }

  void CheckRegularizer(size_t r) {
    const std::string& name = config_.relations[r].operator_name;
    if (config_.regularization_coef > 0 && (name == "linear" || name == "affine") &&
        Sound(RelationKey(r, "operator"), "regularization_coef")) {
      problems_.Add(RelationKey(r, "operator"),
                    absl::StrCat("there is no regularizer for ", name,
                                 "; set regularization_coef to 0 or choose another operator"));
    }
  }

  void CheckNegatives() {
    if (config_.disable_lhs_negs && config_.disable_rhs_negs) {
      problems_.Add("disable_rhs_negs",
                    "is true like disable_lhs_negs; nothing can be learnt without negatives");
    }
    size_t without_all_negs = 0;
    while (without_all_negs < config_.relations.size() &&
           config_.relations[without_all_negs].all_negs) {
      ++without_all_negs;
    }
    if (without_all_negs == config_.relations.size() || !Sound("num_batch_negs")) return;
    const int64_t batch = config_.batch_size;
    const int64_t negatives = config_.num_batch_negs;
    if (negatives == 0 && config_.num_uniform_negs == 0 && Sound("num_uniform_negs")) {
      problems_.Add("num_uniform_negs",
                    absl::StrCat("is 0 like num_batch_negs: there are no negatives for relation \"",
                                 config_.relations[without_all_negs].name,
                                 "\"; set one of them above 0, or all_negs of the relation"));
    }
    if (negatives > 0 && batch % negatives != 0 && Sound("batch_size")) {
      const int64_t below = batch / negatives * negatives;
      problems_.Add("batch_size",
                    absl::StrCat("must be a multiple of num_batch_negs (", negatives, "), is ",
                                 batch, "; the nearest ", below > 0 ? "are " : "is ",
                                 below > 0 ? absl::StrCat(below, " and ") : "", below + negatives));
    }
  }

  // Featurized entities cannot be listed, and so not sampled: as in PBG, negatives on their side
  // are those of the batch.
  void CheckFeaturizedNegatives() {
    for (size_t r = 0; r < config_.relations.size(); ++r) {
      for (const Side side : kSides) {
        const bool disabled =
            side == Side::kLhs ? config_.disable_lhs_negs : config_.disable_rhs_negs;
        if (disabled || !HasSide(r, side)) continue;
        const EntityConfig& type = config_.entities[EntityType(config_.relations[r], side)];
        if (!type.featurized) continue;
        const std::string why = absl::StrCat(
            type.name, " on the ", SideName(side), " of relation \"", config_.relations[r].name,
            "\" is featurized, and such entities cannot be listed");
        if (config_.relations[r].all_negs) {
          if (!Sound(RelationKey(r, "all_negs"))) continue;
          problems_.Add(RelationKey(r, "all_negs"),
                        absl::StrCat("is true, but ", why, "; set it to false, or disable_",
                                     SideName(side), "_negs to true"));
          continue;
        }
        if (config_.num_batch_negs == 0 && Sound("num_batch_negs")) {
          problems_.Add("num_batch_negs",
                        absl::StrCat("is 0, but ", why,
                                     ": only negatives of the batch are possible; set it above 0, "
                                     "or disable_",
                                     SideName(side), "_negs to true"));
        }
        if (config_.eval_fraction > 0 && config_.eval_num_batch_negs == 0 &&
            Sound("eval_num_batch_negs")) {
          problems_.Add("eval_num_batch_negs",
                        absl::StrCat("is 0, but ", why,
                                     ": they can be ranked among those of the batch only; set it "
                                     "above 0, or eval_fraction to 0"));
        }
      }
    }
  }

  void CheckEvaluation() {
    if (!Sound("eval_fraction", "eval_num_batch_negs", "eval_num_uniform_negs")) return;
    if (config_.eval_fraction > 0) {
      const int batch = config_.eval_num_batch_negs.value_or(config_.num_batch_negs);
      const int uniform = config_.eval_num_uniform_negs.value_or(config_.num_uniform_negs);
      const bool all_negs = std::all_of(config_.relations.begin(), config_.relations.end(),
                                        [](const RelationConfig& r) { return r.all_negs; });
      if (batch == 0 && uniform == 0 && !all_negs && Sound("num_batch_negs", "num_uniform_negs")) {
        problems_.Add("eval_num_uniform_negs",
                      "is 0 like eval_num_batch_negs, so the held-out edges have nothing to be "
                      "ranked among; set one of them above 0, or eval_fraction to 0");
      }
    } else if (config_.early_stopping &&
               config_.early_stopping->metric == EarlyStoppingMetric::kMrr &&
               Sound("early_stopping")) {
      problems_.Add("early_stopping.metric",
                    "is \"mrr\", which is measured on held-out edges, and eval_fraction is 0");
    }
  }

  // A trainer that waits for its turn must not count as one that has lost its servers.
  void CheckParamSync() {
    const ParamSyncConfig& sync = config_.param_sync;
    if (sync.max_bytes_per_second != 0 && sync.max_bytes_per_second < kMinParamBytesPerSecond &&
        Sound("param_sync", "param_sync.max_bytes_per_second")) {
      problems_.Add("param_sync.max_bytes_per_second",
                    absl::StrCat("must be 0 (no bound) or at least ", kMinParamBytesPerSecond,
                                 ", is ", sync.max_bytes_per_second));
    }
    if (config_.max_param_staleness != 0 && sync.interval >= config_.max_param_staleness &&
        Sound("param_sync", "param_sync.interval", "max_param_staleness")) {
      problems_.Add("max_param_staleness",
                    absl::StrCat("must be 0 (never) or more than param_sync.interval (",
                                 sync.interval, "), is ", config_.max_param_staleness));
    }
  }

  const RunConfig& config_;
  ConfigProblems& problems_;
};

}  // namespace

void ValidateRunConfig(const RunConfig& config, ConfigProblems* problems) {
  Validation(config, problems).Run();
}

std::vector<std::string> DoubtsAbout(const RunConfig& config) {
  std::vector<std::string> doubts;
  if (config.loss_fn == "logistic" && config.comparator == "cos") {
    doubts.push_back(
        "loss_fn logistic with comparator cos: scores between -1 and 1 never become probabilities "
        "near 0 or 1; dot is usual");
  }
  std::vector<bool> used(config.entities.size());
  for (const RelationConfig& relation : config.relations) {
    for (const Side side : kSides) used[EntityType(relation, side)] = true;
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    doubts.push_back(absl::StrCat(EntityKey(config, static_cast<EntityTypeId>(i)),
                                  ": no relation uses this entity type"));
  }
  return doubts;
}

}  // namespace weft
