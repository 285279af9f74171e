#include "services/common/config_schema.h"

#include <google/protobuf/descriptor.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/common/nearest_key.h"
#include "weft/v1/run_config.pb.h"

namespace weft {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Kind = JsonNode::Kind;

// What other systems call some keys: too far from PBG's names for a spelling mistake.
constexpr std::pair<const char*, const char*> kNamesElsewhere[] = {
    {"learning_rate", "lr"},
    {"epochs", "num_epochs"},
    {"embedding_dim", "dimension"},
    {"dim", "dimension"},
    {"loss", "loss_fn"},
    {"scorer", "comparator"},
    {"random_seed", "seed"},
    {"regularization", "regularization_coef"},
    {"num_threads", "threads"},
    {"output_path", "checkpoint_path"},
    {"partitions", "num_partitions"},
};

}  // namespace

const v1::Rule& RuleOf(const FieldDescriptor& field) {
  return field.options().GetExtension(v1::rule);
}

bool IsObjectKey(const FieldDescriptor& field) { return RuleOf(field).object_key(); }

const FieldDescriptor* ObjectKeyOf(const FieldDescriptor& list) {
  const Descriptor* const type = list.message_type();
  for (int i = 0; type != nullptr && i < type->field_count(); ++i) {
    if (IsObjectKey(*type->field(i))) return type->field(i);
  }
  return nullptr;
}

const FieldDescriptor* FindField(const Descriptor& type, absl::string_view name) {
  std::string lower;
  for (const char c : name) {
    if (absl::ascii_isupper(c)) lower += '_';
    lower += absl::ascii_tolower(c);
  }
  const FieldDescriptor* const field = type.FindFieldByName(lower);
  return field == nullptr || IsObjectKey(*field) ? nullptr : field;
}

std::vector<std::string> FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) {
    if (!IsObjectKey(*type.field(i))) names.push_back(type.field(i)->name());
  }
  return names;
}

std::string UnknownKey(const Descriptor& type, absl::string_view name) {
  for (const auto& [other, ours] : kNamesElsewhere) {
    if (name == other && type.FindFieldByName(ours) != nullptr) {
      return absl::StrCat("unknown key; did you mean \"", ours, "\"?");
    }
  }
  return absl::StrCat("unknown key", Suggestion(name, FieldNames(type)));
}

std::vector<std::string> IgnoredKeys(const JsonNode& json, const Descriptor& type) {
  std::vector<std::string> keys;
  for (const JsonMember& member : json.members) {
    const FieldDescriptor* const field = FindField(type, member.key);
    if (field == nullptr || !RuleOf(*field).has_ignored()) continue;
    const absl::StatusOr<JsonNode> plain = ParseJson(RuleOf(*field).ignored(), field->name());
    if (!plain.ok()) continue;
    const JsonNode& value = member.value;
    double number = 0, usual = 0;
    const bool same_number = absl::SimpleAtod(value.text, &number) &&
                             absl::SimpleAtod(plain->text, &usual) && number == usual &&
                             !value.is(Kind::kString);
    const bool same =
        value.kind == plain->kind && value.boolean == plain->boolean && value.text == plain->text;
    if (!same && !same_number) keys.push_back(field->name());
  }
  return keys;
}

}  // namespace weft
