#include "services/common/rpc/unary_call.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/common/rpc/grpc_status.h"

namespace weft {

CallGroupMember::CallGroupMember(CallGroup* group, grpc::ClientContext* context)
    : group_(group), context_(context) {
  if (group_ == nullptr) return;
  MutexLock lock(&group_->mu_);
  group_->calls_.insert(context_);
  // A call that is cancelled before it starts fails as soon as it does.
  if (group_->flag_.cancelled()) context_->TryCancel();
}

CallGroupMember::~CallGroupMember() {
  if (group_ == nullptr) return;
  MutexLock lock(&group_->mu_);
  group_->calls_.erase(context_);
}

void CallGroup::Cancel() {
  MutexLock lock(&mu_);
  flag_.Cancel();
  for (grpc::ClientContext* context : calls_) context->TryCancel();
}

namespace {

// What gRPC says of connections that do not come about, and what it means.
constexpr std::pair<absl::string_view, absl::string_view> kRefusals[] = {
    {"certificate verify failed",
     "the server's certificate is not of a CA in --tls-ca, or has expired"},
    {"wrong version number", "the server does not speak TLS"},
    {"alert", "the server does not accept this certificate: is it of its CA, and still valid?"},
    // In plain text to a server with TLS; or it refused the certificate after TLS 1.3 was done for
    // this side.
    {"Socket closed",
     "the server ended the connection at once: it may want TLS, with a certificate of its CA that "
     "is still valid (--tls-cert, --tls-key, --tls-ca)"},
};

absl::Status Explain(const absl::Status& status) {
  if (!absl::IsUnavailable(status) ||
      !absl::StrContains(status.message(), "failed to connect to all addresses")) {
    return status;
  }
  for (const auto& [said, meant] : kRefusals) {
    if (!absl::StrContains(status.message(), said)) continue;
    return absl::UnavailableError(absl::StrCat(meant, " (", status.message(), ")"));
  }
  return status;
}

}  // namespace

absl::Status StatusOfCall(const grpc::Status& status, const CallGroup* group) {
  const bool by_us = group != nullptr && group->cancelled();
  if (status.error_code() == grpc::StatusCode::CANCELLED && !by_us) {
    return absl::UnavailableError(status.error_message());
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty()) {
    return absl::UnimplementedError("another program, or another version of it, listens there");
  }
  return Explain(FromGrpcStatus(status));
}

namespace {

// What the waiter and the reactor share; whichever is last frees it.
struct CallResult {
  Mutex mu;
  CondVar done;
  std::optional<grpc::Status> status ABSL_GUARDED_BY(mu);
};

class WaitedReactor : public grpc::ClientUnaryReactor {
 public:
  WaitedReactor(const CallOptions& options, std::shared_ptr<CallResult> result)
      : context_(std::make_unique<grpc::ClientContext>()), result_(std::move(result)) {
    context_->set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
    member_ = std::make_unique<CallGroupMember>(options.group, context_.get());
  }

  grpc::ClientContext* context() { return context_.get(); }

  void OnDone(const grpc::Status& status) override {
    member_.reset();
    context_.reset();
    const std::shared_ptr<CallResult> result = std::move(result_);
    const grpc::Status copy = status;
    delete this;
    MutexLock lock(&result->mu);
    result->status = copy;
    result->done.Signal();
  }

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<CallGroupMember> member_;
  std::shared_ptr<CallResult> result_;
};

}  // namespace

absl::Status UnaryCall(const CallOptions& options, StartUnaryCall start) {
  const auto result = std::make_shared<CallResult>();
  auto* const reactor = new WaitedReactor(options, result);  // deletes itself
  start(reactor->context(), reactor);
  reactor->StartCall();

  MutexLock lock(&result->mu);
  while (!result->status.has_value()) result->done.Wait(&result->mu);
  return StatusOfCall(*result->status, options.group);
}

absl::Status UnaryCallWithRetry(const Peer& peer, const RetryOptions& retry,
                                Idempotency idempotency, const CallOptions& options,
                                StartUnaryCall start) {
  CancelFlag never;
  CancelFlag* const flag = options.group != nullptr ? options.group->flag() : &never;
  return RetryCall(peer, retry, idempotency, flag, [&] { return UnaryCall(options, start); });
}

}  // namespace weft
