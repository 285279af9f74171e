// FakeLockService answers as a test tells it, and remembers what it was asked.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "services/common/mutex.h"
#include "services/common/rpc/grpc_status.h"
#include "weft/v1/lock_service.grpc.pb.h"

namespace weft::testing {

class FakeLockService : public v1::LockService::CallbackService {
 public:
  struct Call {
    std::string method;
    std::string bytes;  // of the request
  };

  // What the handlers answer. Set before the server starts, or guarded by the caller.
  std::function<absl::Status(const v1::RegisterRequest&, v1::RegisterResponse*)> on_register =
      [](const v1::RegisterRequest&, v1::RegisterResponse* response) {
        response->set_lease_ms(60'000);
        return absl::OkStatus();
      };
  std::function<absl::Status(const v1::HeartbeatRequest&, v1::HeartbeatResponse*)> on_heartbeat =
      [](const v1::HeartbeatRequest&, v1::HeartbeatResponse*) { return absl::OkStatus(); };
  std::function<absl::Status(const v1::AcquireBucketRequest&, v1::AcquireBucketResponse*)>
      on_acquire = [](const v1::AcquireBucketRequest&, v1::AcquireBucketResponse*) {
        return absl::OkStatus();
      };
  std::function<absl::Status(const v1::ReleaseBucketRequest&, v1::ReleaseBucketResponse*)>
      on_release = [](const v1::ReleaseBucketRequest&, v1::ReleaseBucketResponse*) {
        return absl::OkStatus();
      };
  // An AcquireBucket that never answers by itself.
  std::atomic<bool> acquire_hangs = false;

  v1::RunContext context;  // of every answer

  std::vector<Call> calls() const {
    MutexLock lock(&mu_);
    return calls_;
  }
  template <typename Request>
  std::vector<Request> Requests(const std::string& method) const {
    MutexLock lock(&mu_);
    std::vector<Request> requests;
    for (const Call& call : calls_) {
      if (call.method == method) requests.emplace_back().ParseFromString(call.bytes);
    }
    return requests;
  }
  // Waits for the `count`th call of this method.
  void AwaitCalls(const std::string& method, int count) const {
    MutexLock lock(&mu_);
    while (counts_[method] < count) arrived_.Wait(&mu_);
  }

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override {
    return Answer(context, "Register", *request, response,
                  [&] { return on_register(*request, response); });
  }
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override {
    return Answer(context, "Heartbeat", *request, response,
                  [&] { return on_heartbeat(*request, response); });
  }
  grpc::ServerUnaryReactor* AcquireBucket(grpc::CallbackServerContext* context,
                                          const v1::AcquireBucketRequest* request,
                                          v1::AcquireBucketResponse* response) override {
    if (acquire_hangs) {
      Remember("AcquireBucket", *request);
      return new Hanging();
    }
    return Answer(context, "AcquireBucket", *request, response,
                  [&] { return on_acquire(*request, response); });
  }
  grpc::ServerUnaryReactor* ReleaseBucket(grpc::CallbackServerContext* context,
                                          const v1::ReleaseBucketRequest* request,
                                          v1::ReleaseBucketResponse* response) override {
    return Answer(context, "ReleaseBucket", *request, response,
                  [&] { return on_release(*request, response); });
  }
  grpc::ServerUnaryReactor* AbandonBucket(grpc::CallbackServerContext* context,
                                          const v1::AbandonBucketRequest* request,
                                          v1::AbandonBucketResponse* response) override {
    return Answer(context, "AbandonBucket", *request, response, [] { return absl::OkStatus(); });
  }
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request,
                                  v1::LeaveResponse* response) override {
    return Answer(context, "Leave", *request, response, [] { return absl::OkStatus(); });
  }
  grpc::ServerUnaryReactor* ReportUnreadable(grpc::CallbackServerContext* context,
                                             const v1::ReportUnreadableRequest* request,
                                             v1::ReportUnreadableResponse* response) override {
    return Answer(context, "ReportUnreadable", *request, response, [&] {
      response->add_places()->set_store_id(request->place().store_id() + 1);
      return absl::OkStatus();
    });
  }

 private:
  class Hanging : public grpc::ServerUnaryReactor {
   public:
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }
  };

  template <typename Request>
  void Remember(const std::string& method, const Request& request) {
    MutexLock lock(&mu_);
    calls_.push_back({method, request.SerializeAsString()});
    ++counts_[method];
    arrived_.SignalAll();
  }

  template <typename Request, typename Response, typename Handler>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* server_context,
                                   const std::string& method, const Request& request,
                                   Response* response, Handler handler) {
    Remember(method, request);
    *response->mutable_context() = context;
    const absl::Status status = handler();
    grpc::ServerUnaryReactor* const reactor = server_context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }

  mutable Mutex mu_;
  mutable CondVar arrived_;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mu_);
  mutable std::map<std::string, int> counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft::testing
