// From JSON to a message, by the message's own descriptor (config_schema.h).
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/common/config_json.h"
#include "services/common/config_problems.h"

namespace google::protobuf {
class Message;
}

namespace weft {

// Names beyond Rule.one_of, for the extensible fields of that name.
struct ExtraNames {
  std::string field;
  std::vector<std::string> names;
};

// Fills `message` with what is right in `json` and adds every problem of the rest to `problems`.
// Keys in PBG's old mixedCase are understood. `key` is the path of `json` in the whole document.
void ReadMessage(const JsonNode& json, absl::string_view key,
                 absl::Span<const ExtraNames> extra_names, google::protobuf::Message* message,
                 ConfigProblems* problems);

}  // namespace weft
