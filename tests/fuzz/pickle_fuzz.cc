// Bytes as a pickle: whatever they are, an answer in memory bounded by their number, and tensors
// that lie in their storages.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "graph/checkpoint/pickle_reader.h"
#include "services/common/check.h"

namespace {

// To a fixed depth: values may hold themselves.
void Walk(const weft::PickleDocument& document, const weft::PickleValue& value, int depth) {
  if (value.kind == weft::PickleValue::Kind::kTensor) {
    const weft::PickledTensor& tensor = document.tensor(value);
    WEFT_CHECK(tensor.offset >= 0 && tensor.size() >= 0);
    WEFT_CHECK(tensor.offset + tensor.size() <= tensor.storage_size);
  }
  if (depth == 0) return;
  size_t left = 32;
  for (const weft::PickleValue* item : value.items) {
    if (left-- == 0) return;
    Walk(document, *item, depth - 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto document =
      weft::ParsePickle(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!document.ok()) {
    WEFT_CHECK(absl::IsDataLoss(document.status()) && !document.status().message().empty());
    return 0;
  }
  (void)document->root().Find("state");
  Walk(*document, document->root(), 4);
  return 0;
}
