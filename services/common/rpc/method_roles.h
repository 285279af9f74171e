// Who may call what: the one table of all methods of all services, by the roles of certificates.
//
// It is asked before any handler, for every call over TLS. A method that it does not know is
// refused to everybody. Plain text has no roles, and is not asked.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "services/common/rpc/roles.h"

namespace weft {

// `path`: as gRPC calls it, "/weft.v1.LockService/Rollback".
// Errors: PermissionDenied: none of the caller's roles may call it (the message says which may).
// Unimplemented: a method that is not in the table.
absl::Status CheckMayCall(absl::string_view path, RoleSet caller);

// Every path of the table.
std::vector<std::string> MethodsWithRoles();

}  // namespace weft
