// Credentials of servers and channels: the one place that decides who may be spoken to how.
//
// With a TlsIdentity everything is mutual TLS. Without one it is plain text: on this machine only,
// or when asked for by name (--insecure); there are no roles then, and everybody may call
// everything.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/common/rpc/roles.h"
#include "services/common/rpc/tls_identity.h"

namespace weft {

struct SecurityOptions {
  bool allow_plain_text = false;               // beyond this machine
  std::shared_ptr<TlsIdentity> tls = nullptr;  // null: plain text
};

// `address`: host:port, or unix:path. True for 127.x.x.x, ::1, localhost and unix sockets.
bool IsLoopback(absl::string_view address);

// `peer`: what the server's certificate has to carry.
// Errors: FailedPrecondition for plain text to or on an address beyond this machine.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    absl::string_view address, Role peer, const SecurityOptions& options);
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    absl::string_view address, const SecurityOptions& options);

}  // namespace weft
