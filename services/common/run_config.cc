#include "services/common/run_config.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/common/config_json.h"
#include "services/common/config_overrides.h"
#include "services/common/config_problems.h"
#include "services/common/config_reader.h"
#include "services/common/config_schema.h"
#include "services/common/config_validation.h"
#include "services/common/config_writer.h"
#include "services/common/cpu_count.h"
#include "services/common/file_util.h"
#include "services/common/run_config_proto.h"
#include "services/common/status_macros.h"
#include "weft/v1/run_config.pb.h"

namespace weft {
namespace {

// Debian's Abseil has a string_view of its own.
absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

// The line of the value at `key` ("relations[1].lhs"), or of the innermost object or list around it
// that is in the document.
int LineOf(const JsonNode& json, absl::string_view key) {
  const JsonNode* node = &json;
  while (!key.empty()) {
    const JsonNode* next = nullptr;
    if (absl::StartsWith(key, "[\"")) {
      const size_t end = key.find("\"]");
      if (end == std::string_view::npos) break;
      next = node->Find(key.substr(2, end - 2));
      key.remove_prefix(end + 2);
    } else if (key.front() == '[') {
      const size_t end = key.find(']');
      size_t index = 0;
      if (end == std::string_view::npos || !absl::SimpleAtoi(key.substr(1, end - 1), &index) ||
          index >= node->elements.size()) {
        break;
      }
      next = &node->elements[index];
      key.remove_prefix(end + 1);
    } else {
      const absl::string_view name = key.substr(0, key.find_first_of(".["));
      next = node->Find(name);
      key.remove_prefix(name.size());
    }
    if (next == nullptr) break;
    node = next;
    if (absl::StartsWith(key, ".")) key.remove_prefix(1);
  }
  return node->line;
}

std::vector<std::string> IgnoredKeysWarning(const JsonNode& json, const v1::RunConfig& message) {
  const std::vector<std::string> keys = IgnoredKeys(json, *message.GetDescriptor());
  if (keys.empty()) return {};
  std::string warning = absl::StrCat("without effect in Weft: ", absl::StrJoin(keys, ", "));
  if (message.num_machines() > 1) {
    absl::StrAppend(&warning, "; num_machines is ", message.num_machines(),
                    ", but one process trains here, on this machine");
  }
  return {warning};
}

// These have one meaning only in PBG, and a run with them would not be the one that was asked for.
void RefuseWhatIsMissing(const v1::RunConfig& message, ConfigProblems* problems) {
  if (message.num_gpus() != 0 && !problems->Concern("num_gpus")) {
    problems->Add("num_gpus", absl::StrCat("must be 0, is ", message.num_gpus(),
                                           "; Weft trains on processors only"));
  }
  if (message.half_precision()) {
    problems->Add("half_precision", "must be false; Weft trains in 32-bit precision");
  }
}

// The fused implementation computes what is built in, and nothing else.
void RequireReferenceForExtraNames(const RunConfig& config, const ConfigOptions& options,
                                   ConfigProblems* problems) {
  if (config.compute == Compute::kReference) return;
  const auto check = [&](const std::string& key, const std::string& name,
                         const std::vector<std::string>& extra) {
    if (std::find(extra.begin(), extra.end(), name) == extra.end()) return;
    problems->Add(key, absl::StrCat("is ", name, ", which is not built in and needs compute to be ",
                                    "reference"));
  };
  check("comparator", config.comparator, options.extra_comparators);
  check("loss_fn", config.loss_fn, options.extra_losses);
  for (size_t r = 0; r < config.relations.size(); ++r) {
    check(MemberKey(ElementKey("relations", r), "operator"), config.relations[r].operator_name,
          options.extra_operators);
  }
}

}  // namespace

bool RunConfig::HasClusterEdges() const {
  return !edge_paths.empty() && absl::StartsWith(edge_paths.front(), kClusterPathPrefix);
}

int RunConfig::NumPartitions(Side side) const {
  int count = 1;
  for (const RelationConfig& relation : relations) {
    const EntityTypeId type = side == Side::kLhs ? relation.lhs : relation.rhs;
    count = std::max(count, entities[type].num_partitions);
  }
  return count;
}

bool RunConfig::UsesEntityType(EntityTypeId type, Side side) const {
  return std::any_of(relations.begin(), relations.end(), [&](const RelationConfig& relation) {
    return (side == Side::kLhs ? relation.lhs : relation.rhs) == type;
  });
}

int RunConfig::NumThreads() const {
  if (threads) return *threads;
  if (workers) return *workers;
  return AvailableCores();
}

absl::StatusOr<ConfigResult> ParseRunConfig(std::string_view json, std::string_view origin,
                                            absl::Span<const std::string> overrides,
                                            const ConfigOptions& options) {
  WEFT_ASSIGN_OR_RETURN(JsonNode document, ParseJson(ToAbsl(json), ToAbsl(origin)));
  v1::RunConfig message;
  ConfigProblems problems;
  ApplyOverrides(overrides, *message.GetDescriptor(), &document, &problems);
  const std::vector<ExtraNames> extra_names = {{"comparator", options.extra_comparators},
                                               {"operator", options.extra_operators},
                                               {"loss_fn", options.extra_losses}};
  ReadMessage(document, "", extra_names, &message, &problems);
  RefuseWhatIsMissing(message, &problems);

  ConfigResult result;
  result.config = RunConfigFromProto(message, &problems);
  if (!problems.full()) ValidateRunConfig(result.config, &problems);
  RequireReferenceForExtraNames(result.config, options, &problems);
  for (ConfigProblem& problem : problems.list()) {
    if (problem.line == 0) problem.line = LineOf(document, problem.key);
  }
  WEFT_RETURN_IF_ERROR(problems.ToStatus(ToAbsl(origin), overrides));

  result.warnings = IgnoredKeysWarning(document, message);
  for (std::string& doubt : DoubtsAbout(result.config)) {
    result.warnings.push_back(std::move(doubt));
  }
  return result;
}

absl::StatusOr<ConfigResult> LoadRunConfig(const std::string& path,
                                           absl::Span<const std::string> overrides,
                                           const ConfigOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseRunConfig(text, path, overrides, options);
}

std::vector<std::string> RunConfigKeys() { return FieldNames(*v1::RunConfig::descriptor()); }

std::string RunConfigToJson(const RunConfig& config, bool pbg_keys_only) {
  v1::RunConfig message;
  RunConfigToProto(config, &message);
  return WriteJson(WriteMessage(message, pbg_keys_only));
}

}  // namespace weft
