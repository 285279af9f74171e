// What messages call the parts of a run.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "services/common/types.h"

namespace weft {

inline std::string ToString(Bucket bucket) {
  return absl::StrCat("(", bucket.lhs, ", ", bucket.rhs, ")");
}

// As a field of the log: without spaces.
inline std::string LogName(Bucket bucket) {
  return absl::StrCat("(", bucket.lhs, ",", bucket.rhs, ")");
}

inline std::string ToString(PartitionKey key) {
  return absl::StrCat("partition ", key.partition, " of entity type ", key.entity_type);
}

}  // namespace weft
