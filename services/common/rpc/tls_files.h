// The files that a process is known by: its certificate (with what leads to the CA, if anything
// does), its key, and the CAs whose certificates it believes. PEM all of them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/rpc/roles.h"

namespace weft {

struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string ca;
};

// What the files hold, found to be usable.
struct TlsMaterial {
  std::string certificate_chain;  // PEM
  std::string private_key;        // PEM; never logged
  std::string ca;                 // PEM
  RoleSet roles;
  std::string serial;  // of the certificate, hexadecimal
  absl::Time valid_from;
  absl::Time valid_until;
};

// Reads the files and checks all that can be checked on this side: the key fits the certificate,
// which is of a CA of the file, valid `now`, meant for TLS, and carries `needed`.
// Errors: FailedPrecondition; one line that names the file, what is wrong with it and what to do.
absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files, RoleSet needed, absl::Time now);

}  // namespace weft
