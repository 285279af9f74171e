// The JSON of a run configuration and its overrides, separated by zero bytes: whatever the bytes,
// an answer; and what is accepted means the same when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "services/common/check.h"
#include "services/common/run_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == 0) {
      parts.emplace_back();
    } else {
      parts.back() += static_cast<char>(data[i]);
    }
  }
  const std::vector<std::string> overrides(parts.begin() + 1, parts.end());
  const auto first = weft::ParseRunConfig(parts.front(), "input", overrides);
  if (!first.ok()) {
    WEFT_CHECK(!first.status().message().empty());
    return 0;
  }
  const std::string text = weft::RunConfigToJson(first->config, /*pbg_keys_only=*/false);
  const auto second = weft::ParseRunConfig(text, "again");
  WEFT_CHECK(second.ok());
  WEFT_CHECK(weft::RunConfigToJson(second->config, /*pbg_keys_only=*/false) == text);
  return 0;
}
