#include "services/common/rpc/credentials.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

absl::Status CheckPlainText(absl::string_view address, const SecurityOptions& options) {
  if (options.allow_plain_text || IsLoopback(address)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      address,
      " is beyond this machine, and plain text is for this machine only; give --tls-cert, ",
      "--tls-key and --tls-ca, or --insecure in a network that you trust"));
}

}  // namespace

bool IsLoopback(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return false;
  const absl::string_view host = address.substr(0, colon);
  if (host == "localhost" || host == "[::1]") return true;
  // Digits and dots only: 127.0.0.1.example.org is a name of somebody else's.
  return absl::StartsWith(host, "127.") &&
         host.find_first_not_of("0123456789.") == absl::string_view::npos;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    absl::string_view address, Role peer, const SecurityOptions& options) {
  if (options.tls != nullptr) return options.tls->ToServersOf(peer);
  WEFT_RETURN_IF_ERROR(CheckPlainText(address, options));
  return grpc::InsecureChannelCredentials();
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    absl::string_view address, const SecurityOptions& options) {
  if (options.tls != nullptr) return options.tls->MakeServerCredentials();
  WEFT_RETURN_IF_ERROR(CheckPlainText(address, options));
  return grpc::InsecureServerCredentials();
}

}  // namespace weft
