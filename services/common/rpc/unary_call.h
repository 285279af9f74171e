// One unary call over gRPC's callback API, waited for.
//
//   GetRunStateResponse response;
//   WEFT_RETURN_IF_ERROR(UnaryCall(options, [&](auto* context, auto* reactor) {
//     stub->async()->GetRunState(context, &request, &response, reactor);
//   }));
//
// The ClientContext is destroyed before the waiter wakes: otherwise the last reference to a channel
// may die on gRPC's own polling thread, at exit.
//
// Thread-safety: any thread, except gRPC's own (no calls from within callbacks).
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/status.h>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/mutex.h"
#include "services/common/retry.h"

namespace weft {

// Calls that are cancelled together, with the waits between their repeats: those of a process that
// ends. Must outlive its calls.
class CallGroup {
 public:
  // Ends all calls with Cancelled, those to come, too.
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);
  CancelFlag* flag() { return &flag_; }
  bool cancelled() const { return flag_.cancelled(); }

 private:
  friend class CallGroupMember;
  CancelFlag flag_;
  Mutex mu_;
  absl::flat_hash_set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mu_);
};

// Makes a call one of its group (which may be null) while it lives. The context outlives it.
class CallGroupMember {
 public:
  CallGroupMember(CallGroup* group, grpc::ClientContext* context);
  ~CallGroupMember();
  CallGroupMember(const CallGroupMember&) = delete;
  CallGroupMember& operator=(const CallGroupMember&) = delete;

 private:
  CallGroup* const group_;
  grpc::ClientContext* const context_;
};

// The status of a call that has ended. Cancelled is what this side did not want any more: its group
// was cancelled. What a server that drains, or a proxy, has cancelled is Unavailable. A service
// that is not there is Unimplemented, and says so.
absl::Status StatusOfCall(const grpc::Status& status, const CallGroup* group);

struct CallOptions {
  absl::Duration timeout = absl::Seconds(10);  // of one attempt
  CallGroup* group = nullptr;
};

using StartUnaryCall =
    absl::FunctionRef<void(grpc::ClientContext* context, grpc::ClientUnaryReactor* reactor)>;

// One attempt. Errors: the callee's (grpc_status.h), DeadlineExceeded, Unavailable, Cancelled.
absl::Status UnaryCall(const CallOptions& options, StartUnaryCall start);

// As often as RetryCall does. `options.group` may be null. Every call of Weft's protocol is
// idempotent when it is repeated with the same bytes; say so where it is called.
absl::Status UnaryCallWithRetry(const Peer& peer, const RetryOptions& retry,
                                Idempotency idempotency, const CallOptions& options,
                                StartUnaryCall start);

}  // namespace weft
