// A SharedLayout as bytes: see the grammar of `tensor` in param_snapshot.h.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/param_server/byte_codec.h"
#include "services/param_server/shared_layout.h"

namespace weft {

void PutLayout(const SharedLayout& layout, std::string* out);
// Errors: DataLoss; InvalidArgument (see SharedLayout::Make).
absl::StatusOr<SharedLayout> ReadLayout(ByteReader* reader);

}  // namespace weft
