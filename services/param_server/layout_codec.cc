#include "services/param_server/layout_codec.h"

#include <utility>
#include <vector>

#include "services/common/status_macros.h"

namespace weft {

void PutLayout(const SharedLayout& layout, std::string* out) {
  PutNumber(layout.num_tensors(), out);
  for (const SharedTensor& t : layout.tensors()) {
    PutString(t.name, out);
    PutNumber(static_cast<uint64_t>(t.rows), out);
    PutNumber(static_cast<uint64_t>(t.cols), out);
    PutNumber(static_cast<uint64_t>(t.size), out);
  }
}

absl::StatusOr<SharedLayout> ReadLayout(ByteReader* reader) {
  WEFT_ASSIGN_OR_RETURN(const uint64_t count, reader->Number());
  std::vector<SharedTensor> tensors;
  for (uint64_t i = 0; i < count; ++i) {  // ends with the bytes at the latest
    SharedTensor& t = tensors.emplace_back();
    WEFT_ASSIGN_OR_RETURN(t.name, reader->String());
    WEFT_ASSIGN_OR_RETURN(const uint64_t rows, reader->Number());
    WEFT_ASSIGN_OR_RETURN(const uint64_t cols, reader->Number());
    WEFT_ASSIGN_OR_RETURN(const uint64_t size, reader->Number());
    t.rows = static_cast<int64_t>(rows);
    t.cols = static_cast<int64_t>(cols);
    t.size = static_cast<int64_t>(size);
  }
  return SharedLayout::Make(std::move(tensors));
}

}  // namespace weft
