// What the fused implementation covers.
#pragma once

#include "absl/status/status.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

// Errors: InvalidArgument for a comparator, operator or loss that is not built in, naming it and
// what to do, and for an odd dimension with complex_diagonal.
absl::Status CheckBuiltIn(const ModelSpec& spec);
absl::Status CheckBuiltInComparator(const ModelSpec& spec);
absl::Status CheckBuiltInOperator(const ModelSpec& spec, RelationTypeId relation);

}  // namespace weft
