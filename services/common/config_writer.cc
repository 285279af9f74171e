#include "services/common/config_writer.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <utility>

#include "services/common/config_schema.h"
#include "weft/v1/run_config.pb.h"

namespace weft {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

JsonNode ScalarNode(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return JsonNode::String(reflection.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return JsonNode::Boolean(reflection.GetBool(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return JsonNode::Decimal(reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_INT32:
      return JsonNode::Integer(int64_t{reflection.GetInt32(message, &field)});
    case FieldDescriptor::CPPTYPE_INT64:
      return JsonNode::Integer(reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return JsonNode::Integer(reflection.GetUInt64(message, &field));
    default:
      return JsonNode();
  }
}

JsonNode ListNode(const Message& message, const FieldDescriptor& field, bool pbg_only) {
  const Reflection& reflection = *message.GetReflection();
  const FieldDescriptor* const object_key = ObjectKeyOf(field);
  JsonNode node = object_key == nullptr ? JsonNode::Array() : JsonNode::Object();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      node.elements.push_back(JsonNode::String(reflection.GetRepeatedString(message, &field, i)));
      continue;
    }
    const Message& element = reflection.GetRepeatedMessage(message, &field, i);
    JsonNode value = WriteMessage(element, pbg_only);
    if (object_key == nullptr) {
      node.elements.push_back(std::move(value));
    } else {
      node.members.push_back(
          {element.GetReflection()->GetString(element, object_key), std::move(value)});
    }
  }
  return node;
}

}  // namespace

JsonNode WriteMessage(const Message& message, bool pbg_only) {
  const Reflection& reflection = *message.GetReflection();
  const Descriptor& type = *message.GetDescriptor();
  JsonNode object = JsonNode::Object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const v1::Rule& rule = RuleOf(field);
    if ((pbg_only && rule.weft_only()) || IsObjectKey(field)) continue;
    JsonNode value;
    if (field.is_repeated()) {
      value = ListNode(message, field, pbg_only);
    } else if (!reflection.HasField(message, &field)) {
      if (!rule.nullable() || rule.has_ignored()) continue;
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      value = WriteMessage(reflection.GetMessage(message, &field), pbg_only);
    } else if (!rule.has_null_as() || reflection.GetInt32(message, &field) != rule.null_as()) {
      value = ScalarNode(message, field);
    }
    object.members.push_back({field.name(), std::move(value)});
  }
  return object;
}

}  // namespace weft
