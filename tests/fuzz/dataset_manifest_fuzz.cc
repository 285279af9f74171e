// weft_manifest.json: whatever the bytes, an answer; and what is accepted means the same when it is
// written and read again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "graph/dataset_manifest.h"
#include "services/common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto first =
      weft::ParseManifest(std::string_view(reinterpret_cast<const char*>(data), size), "input");
  if (!first.ok()) {
    WEFT_CHECK(!first.status().message().empty());
    return 0;
  }
  const auto second = weft::ParseManifest(weft::ManifestToJson(*first), "again");
  WEFT_CHECK(second.ok() && *second == *first);
  return 0;
}
