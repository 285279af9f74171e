// Overrides of single keys of a configuration, as given on a command line: "lr=0.1",
// "entities.user.num_partitions=4", "relations.0.operator=diagonal", "edge_paths=a,b".
#pragma once

#include <string>

#include "absl/types/span.h"
#include "services/common/config_json.h"
#include "services/common/config_problems.h"

namespace google::protobuf {
class Descriptor;
}

namespace weft {

// Writes each override into `json`, in their order, with the line -1, -2, ...; adds what cannot be
// written to `problems`. What is written is not yet checked.
//
// An override is split at its first '='. Its key is a path of keys and, for lists, indices; every
// object and element on the path but the last must exist (an object that may be null is made).
// Its value is read by the type of the key: a string stands for itself, quotes are not needed; a
// list of strings is JSON or separated by commas; everything else is JSON; null is null.
void ApplyOverrides(absl::Span<const std::string> overrides,
                    const google::protobuf::Descriptor& type, JsonNode* json,
                    ConfigProblems* problems);

}  // namespace weft
