// What the .proto file says about the keys of a message: it is the schema of the JSON.
//
// Scalars, lists of strings, messages, lists of messages, and objects of messages
// (Rule.object_key). Ranges, allowed names and the like come from the option weft.v1.rule.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "services/common/config_json.h"

namespace google::protobuf {
class Descriptor;
class FieldDescriptor;
}  // namespace google::protobuf

namespace weft::v1 {
class Rule;
}

namespace weft {

const v1::Rule& RuleOf(const google::protobuf::FieldDescriptor& field);

// Whether the field is the key of an object, so no key within it.
bool IsObjectKey(const google::protobuf::FieldDescriptor& field);

// The field that is the key, for a list of messages that is an object in JSON; else null.
const google::protobuf::FieldDescriptor* ObjectKeyOf(const google::protobuf::FieldDescriptor& list);

// The field of that name, or of the name that PBG's old mixedCase stands for; null without one.
const google::protobuf::FieldDescriptor* FindField(const google::protobuf::Descriptor& type,
                                                   absl::string_view name);

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type);

// "learning_rate" -> `unknown key; did you mean "lr"?`.
std::string UnknownKey(const google::protobuf::Descriptor& type, absl::string_view name);

// The keys without an effect here whose value in `json` is not PBG's default.
std::vector<std::string> IgnoredKeys(const JsonNode& json,
                                     const google::protobuf::Descriptor& type);

}  // namespace weft
