// Between the messages of proto/weft/v1/param_service.proto and the structs of param_exchange.h.
//
// What comes from outside is checked for its form: as many rows as it says, whole floats, the
// checksum. Whether there are such rows is for the store to say.
#pragma once

#include "absl/status/statusor.h"
#include "services/param_server/param_exchange.h"
#include "weft/v1/param_service.pb.h"

namespace weft {

v1::JoinRequest ToProto(const JoinRequest& request);
v1::JoinResponse ToProto(const JoinPage& page);
v1::PushRequest ToProto(const PushRequest& request);
v1::PushResponse ToProto(const PushAnswer& answer);

JoinRequest FromProto(const v1::JoinRequest& request);
// Errors of all: InvalidArgument (the arrays differ in length, or bytes are no floats), DataLoss
// (the checksum).
absl::StatusOr<JoinPage> FromProto(const v1::JoinResponse& page);
absl::StatusOr<PushRequest> FromProto(const v1::PushRequest& request);
absl::StatusOr<PushAnswer> FromProto(const v1::PushResponse& answer);

}  // namespace weft
