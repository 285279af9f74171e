#include "services/common/config_reader.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/common/config_schema.h"
#include "services/common/nearest_key.h"
#include "weft/v1/run_config.pb.h"

namespace weft {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Kind = JsonNode::Kind;

std::string Limit(double limit) {
  const bool whole = limit == std::floor(limit) && std::abs(limit) < 1e15;
  return whole ? absl::StrCat(static_cast<int64_t>(limit)) : absl::StrCat(limit);
}

// ">= 0 and < 1"
std::string DescribeRange(const v1::Rule& rule) {
  std::vector<std::string> limits;
  if (rule.has_min()) limits.push_back(absl::StrCat(">= ", Limit(rule.min())));
  if (rule.has_greater_than()) limits.push_back(absl::StrCat("> ", Limit(rule.greater_than())));
  if (rule.has_max()) limits.push_back(absl::StrCat("<= ", Limit(rule.max())));
  if (rule.has_less_than()) limits.push_back(absl::StrCat("< ", Limit(rule.less_than())));
  return absl::StrJoin(limits, " and ");
}

bool InRange(const v1::Rule& rule, double value) {
  return (!rule.has_min() || value >= rule.min()) && (!rule.has_max() || value <= rule.max()) &&
         (!rule.has_greater_than() || value > rule.greater_than()) &&
         (!rule.has_less_than() || value < rule.less_than());
}

class Reader {
 public:
  Reader(absl::Span<const ExtraNames> extra_names, ConfigProblems* problems)
      : extra_names_(extra_names), problems_(problems) {}

  void ReadObject(const JsonNode& json, const std::string& key, Message* message) {
    if (!json.is(Kind::kObject)) {
      return WrongType(json, key, "an object");
    }
    const Descriptor& type = *message->GetDescriptor();
    absl::flat_hash_map<const FieldDescriptor*, int> seen;  // the line of each
    for (const JsonMember& member : json.members) {
      if (problems_->full()) return;
      const std::string member_key = MemberKey(key, member.key);
      const FieldDescriptor* field = FindField(type, member.key);
      if (field == nullptr) {
        Add(member_key, UnknownKey(type, member.key), member.value);
        continue;
      }
      const auto [first, is_first] = seen.try_emplace(field, member.value.line);
      if (!is_first) {
        Add(member_key, absl::StrCat("appears twice, first in line ", first->second), member.value);
        continue;
      }
      ReadField(member.value, member_key, *field, message);
    }
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (RuleOf(field).required() && !seen.contains(&field)) {
        Add(MemberKey(key, field.name()), "is missing", json);
      }
    }
  }

 private:
  void Add(std::string key, std::string message, const JsonNode& at) {
    problems_->Add(std::move(key), std::move(message), at.line);
  }
  void WrongType(const JsonNode& json, const std::string& key, absl::string_view wanted) {
    Add(key, absl::StrCat("must be ", wanted, ", is ", DescribeJson(json)), json);
  }

  void ReadField(const JsonNode& json, const std::string& key, const FieldDescriptor& field,
                 Message* message) {
    const v1::Rule& rule = RuleOf(field);
    if (json.is(Kind::kNull)) {
      if (rule.has_null_as()) {
        message->GetReflection()->SetInt32(message, &field, rule.null_as());
      } else if (!rule.nullable()) {
        Add(key,
            rule.required() ? "must not be null" : "must not be null; leave it out for the default",
            json);
      }
      return;
    }
    if (field.is_repeated()) {
      ObjectKeyOf(field) != nullptr ? ReadMap(json, key, field, message)
                                    : ReadList(json, key, field, message);
      return;
    }
    const Reflection& reflection = *message->GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return ReadObject(json, key, reflection.MutableMessage(message, &field));
      case FieldDescriptor::CPPTYPE_STRING:
        if (!json.is(Kind::kString)) return WrongType(json, key, "a string");
        if (CheckString(json, key, field)) reflection.SetString(message, &field, json.text);
        return;
      case FieldDescriptor::CPPTYPE_BOOL:
        if (!json.is(Kind::kBool)) return WrongType(json, key, "true or false");
        reflection.SetBool(message, &field, json.boolean);
        return;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        if (double value; CheckDouble(json, key, rule, &value)) {
          reflection.SetDouble(message, &field, value);
        }
        return;
      case FieldDescriptor::CPPTYPE_INT32:
        if (int32_t value; CheckInteger(json, key, rule, &value)) {
          reflection.SetInt32(message, &field, value);
        }
        return;
      case FieldDescriptor::CPPTYPE_INT64:
        if (int64_t value; CheckInteger(json, key, rule, &value)) {
          reflection.SetInt64(message, &field, value);
        }
        return;
      case FieldDescriptor::CPPTYPE_UINT64:
        if (uint64_t value; CheckInteger(json, key, rule, &value)) {
          reflection.SetUInt64(message, &field, value);
        }
        return;
      default:
        Add(key, "has a type that the reader does not know", json);
    }
  }

  void ReadList(const JsonNode& json, const std::string& key, const FieldDescriptor& field,
                Message* message) {
    const bool strings = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (!json.is(Kind::kArray)) {
      return WrongType(json, key, strings ? "a list of strings" : "a list of objects");
    }
    if (RuleOf(field).non_empty() && json.elements.empty()) {
      return Add(key, "must not be empty", json);
    }
    const Reflection& reflection = *message->GetReflection();
    for (size_t i = 0; i < json.elements.size(); ++i) {
      const JsonNode& element = json.elements[i];
      const std::string element_key = ElementKey(key, i);
      if (!strings) {
        // Added even when it is wrong: the ids of the others are their places in the list.
        ReadObject(element, element_key, reflection.AddMessage(message, &field));
      } else if (!element.is(Kind::kString)) {
        WrongType(element, element_key, "a string");
      } else if (CheckString(element, element_key, field)) {
        reflection.AddString(message, &field, element.text);
      }
    }
  }

  void ReadMap(const JsonNode& json, const std::string& key, const FieldDescriptor& field,
               Message* message) {
    if (!json.is(Kind::kObject)) return WrongType(json, key, "an object");
    if (RuleOf(field).non_empty() && json.members.empty()) {
      return Add(key, "must not be empty", json);
    }
    const Reflection& reflection = *message->GetReflection();
    absl::flat_hash_map<absl::string_view, int> seen;
    for (const JsonMember& member : json.members) {
      const std::string member_key = MemberKey(key, member.key);
      const auto [first, is_first] = seen.try_emplace(member.key, member.value.line);
      if (!is_first) {
        Add(member_key, absl::StrCat("appears twice, first in line ", first->second), member.value);
        continue;
      }
      Message* const element = reflection.AddMessage(message, &field);
      element->GetReflection()->SetString(element, ObjectKeyOf(field), member.key);
      ReadObject(member.value, member_key, element);
    }
  }

  bool CheckString(const JsonNode& json, const std::string& key, const FieldDescriptor& field) {
    const v1::Rule& rule = RuleOf(field);
    if (rule.non_empty() && json.text.empty()) {
      Add(key, "must not be empty", json);
      return false;
    }
    if (json.text.find('\0') != std::string::npos) {
      Add(key, "must not contain a zero byte", json);
      return false;
    }
    if (rule.one_of().empty()) return true;
    std::vector<std::string> names(rule.one_of().begin(), rule.one_of().end());
    if (rule.extensible()) {
      for (const ExtraNames& extra : extra_names_) {
        if (extra.field == field.name()) {
          names.insert(names.end(), extra.names.begin(), extra.names.end());
        }
      }
    }
    for (const std::string& name : names) {
      if (name == json.text) return true;
    }
    Add(key,
        absl::StrCat("must be one of ", absl::StrJoin(names, ", "), "; is ", DescribeJson(json),
                     DidYouMean(json.text, names)),
        json);
    return false;
  }

  bool CheckRange(const JsonNode& json, const std::string& key, const v1::Rule& rule,
                  double value) {
    if (InRange(rule, value)) return true;
    Add(key, absl::StrCat("must be ", DescribeRange(rule), ", is ", DescribeJson(json)), json);
    return false;
  }

  bool CheckDouble(const JsonNode& json, const std::string& key, const v1::Rule& rule,
                   double* value) {
    const bool number = json.is(Kind::kInteger) || json.is(Kind::kDecimal);
    if (!number || !absl::SimpleAtod(json.text, value)) {
      WrongType(json, key, "a number");
      return false;
    }
    // Such numbers are used as 32-bit ones, where they must not become 0 or infinite.
    const float used = static_cast<float>(*value);
    if (!std::isfinite(used) || (used == 0) != (*value == 0)) {
      Add(key,
          absl::StrCat("is too ", used == 0 ? "small" : "large",
                       " for a 32-bit number: ", DescribeJson(json)),
          json);
      return false;
    }
    return CheckRange(json, key, rule, *value);
  }

  template <typename Integer>
  bool CheckInteger(const JsonNode& json, const std::string& key, const v1::Rule& rule,
                    Integer* value) {
    if (!json.is(Kind::kInteger)) {
      WrongType(json, key, "an integer");
      return false;
    }
    if (!absl::SimpleAtoi(json.text, value)) {
      using Limits = std::numeric_limits<Integer>;
      v1::Rule limits = rule;
      if (!limits.has_min() && !limits.has_greater_than()) {
        limits.set_min(static_cast<double>(Limits::min()));
      }
      const std::string range =
          limits.has_max() ? DescribeRange(limits)
                           : absl::StrCat(DescribeRange(limits), " and <= ", Limits::max());
      Add(key, absl::StrCat("must be ", range, ", is ", DescribeJson(json)), json);
      return false;
    }
    return CheckRange(json, key, rule, static_cast<double>(*value));
  }

  const absl::Span<const ExtraNames> extra_names_;
  ConfigProblems* const problems_;
};

}  // namespace

void ReadMessage(const JsonNode& json, absl::string_view key,
                 absl::Span<const ExtraNames> extra_names, Message* message,
                 ConfigProblems* problems) {
  Reader(extra_names, problems).ReadObject(json, std::string(key), message);
}

}  // namespace weft
