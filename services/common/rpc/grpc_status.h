// What a status code means between the processes, and its way over gRPC.
//
//   code                 means                                            the caller
//   OK                   done; "nothing to do now" is OK, too
//   InvalidArgument      wrong whatever the state                         has a bug, or bad input
//   NotFound             what was named is not there: a statement         looks elsewhere
//   AlreadyExists        the name exists with another content             has a bug
//   FailedPrecondition   wrong now: another run, another state            does something else first
//   Aborted              stale term, generation, session or grant         forgets, registers anew
//   OutOfRange           a number that is not finite, or out of bounds    stops the run
//   ResourceExhausted    full disk, or throttled                          goes elsewhere, or waits
//   DataLoss             a checksum is wrong                              reports it
//   Unavailable          nobody answers, or not ready yet                 repeats the same call
//   DeadlineExceeded     no answer in time; it may have had its effect    repeats the same call
//   Cancelled            the caller itself did not want it any more
//   PermissionDenied     this role may not call this
//   Unauthenticated      no valid certificate
//   Unimplemented        the peer does not know this call: another version
//   Internal, Unknown    a bug, or a disk that fails
//
// Every code and its message survive the way there and back; long messages are cut.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace weft {

// Longer messages are cut: gRPC refuses the answer when its trailers exceed 8 KiB.
inline constexpr size_t kMaxStatusMessageBytes = 2048;

grpc::Status ToGrpcStatus(const absl::Status& status);

// A connection that broke in mid-call is Unavailable, however gRPC calls it.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace weft
