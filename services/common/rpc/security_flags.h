// The flags that say how a program speaks to others: the same ones for all of them.
//
//   --tls-cert FILE --tls-key FILE --tls-ca FILE     all three or none (WEFT_TLS_CERT, ..._KEY,
//   ..._CA)
//   --insecure                                       plain text beyond this machine, without them
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/rpc/credentials.h"

namespace CLI {
class App;
}

namespace weft {

struct SecurityFlags {
  TlsFiles tls;
  bool insecure = false;
};

// Parsing refuses some of the three without the others.
void AddSecurityFlags(CLI::App* app, SecurityFlags* flags);

// `needed`: roles that the certificate has to carry; none: any one. After ShutdownSignals.
// Errors: FailedPrecondition: a file cannot be used; one line says which and why.
absl::StatusOr<SecurityOptions> MakeSecurityOptions(const SecurityFlags& flags, RoleSet needed);

// The flags as another program takes them.
std::vector<std::string> SecurityArguments(const SecurityFlags& flags);

}  // namespace weft
