#include "services/common/log_event.h"

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

std::string ToText(const LogField::Value& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, bool>) return held ? "true" : "false";
        return absl::StrCat(held);  // of a double, six digits
      },
      value);
}

}  // namespace

std::string ToText(const LogEvent& event) {
  std::string text = event.what;
  absl::string_view before = ": ";
  for (const LogField& field : event.fields) {
    absl::StrAppend(&text, before, field.name, "=", ToText(field.value));
    before = " ";
  }
  return text;
}

}  // namespace weft
