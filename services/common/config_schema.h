// The JSON of a message, by the message's own descriptor: the schema is the .proto file.
//
// Scalars, lists of strings, messages, lists of messages, and objects of messages. Ranges, allowed
// names and the like come from the option weft.v1.rule.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/common/config_json.h"
#include "services/common/config_problems.h"

namespace google::protobuf {
class Descriptor;
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

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

// Every key of the message in the order of the .proto file: what is absent is null where that is
// allowed, else left out. `pbg_only`: without Weft's own keys.
JsonNode WriteMessage(const google::protobuf::Message& message, bool pbg_only);

// The field of that name, or of the name that PBG's old mixedCase stands for; null without one.
const google::protobuf::FieldDescriptor* FindField(const google::protobuf::Descriptor& type,
                                                   absl::string_view name);

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type);

// "lr" -> "is unknown; did you mean ...".
std::string UnknownKey(const google::protobuf::Descriptor& type, absl::string_view name);

// The keys without an effect here whose value in `json` is not PBG's default.
std::vector<std::string> IgnoredKeys(const JsonNode& json,
                                     const google::protobuf::Descriptor& type);

}  // namespace weft
