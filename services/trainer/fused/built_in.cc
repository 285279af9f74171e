#include "services/trainer/fused/built_in.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

absl::Status NotBuiltIn(std::string_view key, const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(key), " ", name,
                   " is not built in; what you have registered yourself runs with "
                   "`compute: reference`"));
}

}  // namespace

absl::Status CheckBuiltInComparator(const ModelSpec& spec) {
  if (spec.comparator != Comparator::kCustom) return absl::OkStatus();
  return NotBuiltIn("comparator", spec.comparator_name);
}

absl::Status CheckBuiltInOperator(const ModelSpec& spec, RelationTypeId relation) {
  const RelationSpec& r = spec.relation(relation);
  if (r.op == Operator::kCustom) {
    return NotBuiltIn(absl::StrCat("relation ", r.name, ": operator"), r.operator_name);
  }
  if (r.op == Operator::kComplexDiagonal && spec.dimension(relation) % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("relation ", r.name, ": complex_diagonal needs an even dimension, not ",
                     spec.dimension(relation)));
  }
  return absl::OkStatus();
}

absl::Status CheckBuiltIn(const ModelSpec& spec) {
  WEFT_RETURN_IF_ERROR(CheckBuiltInComparator(spec));
  if (spec.loss == Loss::kCustom) return NotBuiltIn("loss_fn", spec.loss_name);
  for (size_t r = 0; r < spec.relations.size(); ++r) {
    WEFT_RETURN_IF_ERROR(CheckBuiltInOperator(spec, static_cast<RelationTypeId>(r)));
  }
  return absl::OkStatus();
}

}  // namespace weft
