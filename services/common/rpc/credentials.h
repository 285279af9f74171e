// Credentials of servers and channels: the one place that decides who may be spoken to how.
//
// Plain text on this machine only, or when asked for by name (--insecure).
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

struct SecurityOptions {
  bool allow_plain_text = false;  // beyond this machine
};

// `address`: host:port, or unix:path. True for 127.x.x.x, ::1, localhost and unix sockets.
bool IsLoopback(absl::string_view address);

// Errors: FailedPrecondition for plain text to or on an address beyond this machine.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    absl::string_view address, const SecurityOptions& options);
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    absl::string_view address, const SecurityOptions& options);

}  // namespace weft
