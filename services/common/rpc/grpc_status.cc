#include "services/common/rpc/grpc_status.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using absl::StatusCode;

constexpr std::pair<StatusCode, grpc::StatusCode> kCodes[] = {
    {StatusCode::kOk, grpc::StatusCode::OK},
    {StatusCode::kCancelled, grpc::StatusCode::CANCELLED},
    {StatusCode::kUnknown, grpc::StatusCode::UNKNOWN},
    {StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
    {StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
    {StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND},
    {StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS},
    {StatusCode::kPermissionDenied, grpc::StatusCode::PERMISSION_DENIED},
    {StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
    {StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
    {StatusCode::kAborted, grpc::StatusCode::ABORTED},
    {StatusCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE},
    {StatusCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
    {StatusCode::kInternal, grpc::StatusCode::INTERNAL},
    {StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE},
    {StatusCode::kDataLoss, grpc::StatusCode::DATA_LOSS},
    {StatusCode::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED},
};

// Cuts between characters.
std::string CutMessage(absl::string_view message) {
  if (message.size() <= kMaxStatusMessageBytes) return std::string(message);
  constexpr absl::string_view kEllipsis = "...";
  size_t size = kMaxStatusMessageBytes - kEllipsis.size();
  while (size > 0 && (static_cast<unsigned char>(message[size]) & 0xC0) == 0x80) --size;
  return absl::StrCat(message.substr(0, size), kEllipsis);
}

// gRPC's own words for a peer that went away in the middle of a call.
bool IsBrokenConnection(const grpc::Status& status) {
  return (status.error_code() == grpc::StatusCode::UNKNOWN &&
          status.error_message() == "Stream removed") ||
         (status.error_code() == grpc::StatusCode::INTERNAL &&
          absl::StartsWith(status.error_message(), "Received RST_STREAM"));
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto* const found =
      std::find_if(std::begin(kCodes), std::end(kCodes),
                   [&](const auto& code) { return code.first == status.code(); });
  const grpc::StatusCode code =
      found == std::end(kCodes) ? grpc::StatusCode::UNKNOWN : found->second;
  return grpc::Status(code, CutMessage(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (IsBrokenConnection(status)) return absl::UnavailableError(status.error_message());
  const auto* const found =
      std::find_if(std::begin(kCodes), std::end(kCodes),
                   [&](const auto& code) { return code.second == status.error_code(); });
  const StatusCode code = found == std::end(kCodes) ? StatusCode::kUnknown : found->first;
  return absl::Status(code, status.error_message());
}

}  // namespace weft
