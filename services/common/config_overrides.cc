#include "services/common/config_overrides.h"

#include <google/protobuf/descriptor.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "services/common/config_schema.h"
#include "services/common/nearest_key.h"

namespace weft {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Kind = JsonNode::Kind;

void SetLine(JsonNode* node, int line) {
  node->line = line;
  for (JsonNode& element : node->elements) SetLine(&element, line);
  for (JsonMember& member : node->members) SetLine(&member.value, line);
}

// One override on its way down the document.
class Override {
 public:
  Override(absl::string_view value, int line, ConfigProblems* problems)
      : value_(value), line_(line), problems_(problems) {}

  // `path` begins with a key of `object`, whose own key is `key`.
  void DescendObject(absl::Span<const absl::string_view> path, const std::string& key,
                     const Descriptor& type, JsonNode* object) {
    const std::string member_key = MemberKey(key, path.front());
    const FieldDescriptor* const field = FindField(type, path.front());
    if (field == nullptr) return Add(member_key, UnknownKey(type, path.front()));
    path.remove_prefix(1);

    JsonNode* value = FindMember(type, *field, object);
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (path.empty()) {
      std::optional<JsonNode> parsed = ParseValue(member_key, *field);
      if (!parsed) return;
      if (value == nullptr) {
        value = &object->members.emplace_back(JsonMember{field->name(), {}}).value;
      }
      *value = *std::move(parsed);
      return;
    }
    if (!is_message && !field->is_repeated()) {
      return Add(member_key, absl::StrCat("has nothing below it, such as \"", path.front(), "\""));
    }
    if (!field->is_repeated()) {
      if (value == nullptr) {
        value = &object->members.emplace_back(JsonMember{field->name(), {}}).value;
      }
      if (value->is(Kind::kNull)) {
        *value = JsonNode::Object();
        value->line = line_;
      }
      if (value->is(Kind::kObject)) {
        DescendObject(path, member_key, *field->message_type(), value);
      }
      return;  // else the document's own type is wrong, which is told when it is checked
    }
    if (value == nullptr) return Add(member_key, "is not in the configuration");
    DescendList(path, member_key, *field, value);
  }

 private:
  void Add(std::string key, std::string message) {
    problems_->Add(std::move(key), std::move(message), line_);
  }

  // The member that is `field`, in either spelling.
  static JsonNode* FindMember(const Descriptor& type, const FieldDescriptor& field,
                              JsonNode* object) {
    for (JsonMember& member : object->members) {
      if (FindField(type, member.key) == &field) return &member.value;
    }
    return nullptr;
  }

  void DescendList(absl::Span<const absl::string_view> path, const std::string& key,
                   const FieldDescriptor& field, JsonNode* list) {
    JsonNode* element = nullptr;
    std::string element_key;
    if (list->is(Kind::kObject)) {
      element_key = MemberKey(key, path.front());
      element = list->Find(path.front());
      if (element == nullptr) {
        std::vector<std::string> names;
        for (const JsonMember& member : list->members) names.push_back(member.key);
        return Add(element_key, absl::StrCat("no such name", Suggestion(path.front(), names)));
      }
    } else if (list->is(Kind::kArray)) {
      size_t index = 0;
      if (!absl::SimpleAtoi(path.front(), &index) || index >= list->elements.size()) {
        return Add(absl::StrCat(key, "[", path.front(), "]"),
                   absl::StrCat("no such index: the list has ", list->elements.size(),
                                " elements, counted from 0"));
      }
      element_key = ElementKey(key, index);
      element = &list->elements[index];
    } else {
      return;  // a wrong type, told when it is checked
    }
    path.remove_prefix(1);
    if (path.empty()) {
      if (std::optional<JsonNode> parsed = ParseElement(element_key, field)) {
        *element = *std::move(parsed);
      }
      return;
    }
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return Add(element_key, absl::StrCat("has nothing below it, such as \"", path.front(), "\""));
    }
    if (element->is(Kind::kObject)) {
      DescendObject(path, element_key, *field.message_type(), element);
    }
  }

  std::optional<JsonNode> ParseValue(const std::string& key, const FieldDescriptor& field) {
    const bool strings = field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (!strings || absl::StartsWith(value_, "[")) {
      return field.is_repeated() ? ParseDocument(key) : ParseElement(key, field);
    }
    JsonNode list = JsonNode::Array();
    if (!value_.empty()) {
      for (const absl::string_view part : absl::StrSplit(value_, ',')) {
        list.elements.push_back(JsonNode::String(part));
      }
    }
    SetLine(&list, line_);
    return list;
  }

  std::optional<JsonNode> ParseElement(const std::string& key, const FieldDescriptor& field) {
    const bool quoted = value_.size() >= 2 && value_.front() == '"' && value_.back() == '"';
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_STRING || quoted || value_ == "null") {
      return ParseDocument(key);
    }
    JsonNode node = JsonNode::String(value_);
    node.line = line_;
    return node;
  }

  std::optional<JsonNode> ParseDocument(const std::string& key) {
    absl::StatusOr<JsonNode> parsed = ParseJson(value_, "the value");
    if (!parsed.ok()) {
      // A bare word where a number or a list belongs: let the check say what is wanted.
      const bool word = value_.find_first_of("{}[],:\"") == absl::string_view::npos;
      if (!word) {
        Add(key, std::string(parsed.status().message()));
        return std::nullopt;
      }
      parsed = JsonNode::String(value_);
    }
    SetLine(&*parsed, line_);
    return *std::move(parsed);
  }

  const absl::string_view value_;
  const int line_;
  ConfigProblems* const problems_;
};

}  // namespace

void ApplyOverrides(absl::Span<const std::string> overrides, const Descriptor& type, JsonNode* json,
                    ConfigProblems* problems) {
  if (!json->is(Kind::kObject)) return;
  for (size_t i = 0; i < overrides.size(); ++i) {
    const int line = -static_cast<int>(i) - 1;
    const absl::string_view text = overrides[i];
    const size_t equals = text.find('=');
    if (equals == absl::string_view::npos || equals == 0) {
      problems->Add("", "is not of the form key=value", line);
      continue;
    }
    const std::vector<absl::string_view> path = absl::StrSplit(text.substr(0, equals), '.');
    Override(text.substr(equals + 1), line, problems).DescendObject(path, "", type, json);
  }
}

}  // namespace weft
