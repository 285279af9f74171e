// Early return for absl::Status and absl::StatusOr.
//
//   WEFT_RETURN_IF_ERROR(store.Put(block));
//   WEFT_ASSIGN_OR_RETURN(auto block, store.Get(key));
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define WEFT_RETURN_IF_ERROR(expr)                              \
  do {                                                          \
    if (absl::Status weft_status = (expr); !weft_status.ok()) { \
      return weft_status;                                       \
    }                                                           \
  } while (false)

#define WEFT_ASSIGN_OR_RETURN(lhs, expr) \
  WEFT_ASSIGN_OR_RETURN_IMPL_(WEFT_CONCAT_(weft_status_or_, __LINE__), lhs, expr)
#define WEFT_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                                \
  if (!result.ok()) {                                  \
    return std::move(result).status();                 \
  }                                                    \
  lhs = std::move(result).value()
#define WEFT_CONCAT_(a, b) WEFT_CONCAT_IMPL_(a, b)
#define WEFT_CONCAT_IMPL_(a, b) a##b

namespace weft {

// The same code with "context: " before the message.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace weft
