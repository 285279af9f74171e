// A server that echoes, on a free port of this machine.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "echo_service.grpc.pb.h"
#include "services/common/mutex.h"
#include "services/common/rpc/grpc_status.h"
#include "services/common/rpc/server_runner.h"

namespace weft::testing {

class EchoServiceImpl : public EchoService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Echo(grpc::CallbackServerContext* context, const EchoRequest* request,
                                 EchoResponse* response) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    response->set_payload(request->payload());
    reactor->Finish(ToGrpcStatus(
        absl::Status(static_cast<absl::StatusCode>(request->code()), request->message())));
    return reactor;
  }

  grpc::ServerUnaryReactor* WaitForDrain(grpc::CallbackServerContext*, const WaitForDrainRequest*,
                                         WaitForDrainResponse* response) override {
    auto* const reactor = new Waiting(this, response);
    MutexLock lock(&mu_);
    waiting_.push_back(reactor);
    arrived_.SignalAll();
    return reactor;
  }

  void AwaitCalls(size_t count) {
    MutexLock lock(&mu_);
    while (waiting_.size() < count) arrived_.Wait(&mu_);
  }

  void Drain() {
    std::vector<Waiting*> waiting;
    {
      MutexLock lock(&mu_);
      waiting.swap(waiting_);
    }
    for (Waiting* reactor : waiting) reactor->End(true);
  }

 private:
  class Waiting : public grpc::ServerUnaryReactor {
   public:
    Waiting(EchoServiceImpl* service, WaitForDrainResponse* response)
        : service_(service), response_(response) {}
    void End(bool drained) {
      response_->set_drained(drained);
      Finish(grpc::Status::OK);
    }
    void OnCancel() override {
      bool mine = false;
      {
        MutexLock lock(&service_->mu_);
        mine = std::erase(service_->waiting_, this) > 0;
      }
      if (mine) Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    EchoServiceImpl* const service_;
    WaitForDrainResponse* const response_;
  };

  Mutex mu_;
  CondVar arrived_;
  std::vector<Waiting*> waiting_ ABSL_GUARDED_BY(mu_);
};

struct EchoServer {
  explicit EchoServer(std::string listen = "127.0.0.1:0") {
    ServerRunner::Options options;
    options.listen = std::move(listen);
    options.grace = absl::Milliseconds(200);
    options.on_drain = [this] { service.Drain(); };
    auto started = ServerRunner::Start(options, {&service});
    EXPECT_TRUE(started.ok()) << started.status();
    if (started.ok()) runner = *std::move(started);
  }

  EchoServiceImpl service;
  std::unique_ptr<ServerRunner> runner;
};

}  // namespace weft::testing
