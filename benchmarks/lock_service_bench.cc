// How long calls to a lock server take over gRPC, at a paced 4,000 calls a second of 1,000
// sessions: acquires that do not wait, releases, and heartbeats. Client and server share this
// machine.
//
//   lock_service_bench [seconds]      the folder is $TMPDIR: it should be on a real disk
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/common/check.h"
#include "services/common/mutex.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/server_runner.h"
#include "services/lock_server/lock_service_impl.h"
#include "services/lock_server/rocksdb_run_store.h"
#include "tests/lock_server/coordinator_fixture.h"

namespace weft {
namespace {

using std::chrono::steady_clock;

constexpr int kPartitions = 1024;
constexpr int kSessions = 1000;
constexpr int kCallsPerSecond = 4000;
constexpr StoreId kStore = 11;

struct Session {
  v1::AcquireBucketRequest acquire;
  v1::ReleaseBucketRequest release;
  v1::HeartbeatRequest heartbeat;
  bool has_grant = false;
  bool beat_next = false;
  bool busy = false;
};

// One call under way. Deletes itself.
template <typename Response>
struct Pending {
  grpc::ClientContext context;
  Response response;
};

class Load {
 public:
  explicit Load(const std::string& address) {
    for (int i = 0; i < 8; ++i) {
      auto channel = MakeChannel(address, {}, i);
      WEFT_CHECK(channel.ok());
      stubs_.push_back(v1::LockService::NewStub(*channel));
    }
    for (int i = 0; i < kSessions; ++i) {
      Session& session = sessions_.emplace_back();
      v1::RegisterRequest request;
      request.set_incarnation(static_cast<uint64_t>(1000 + i));
      request.set_protocol_version(kProtocolVersion);
      request.set_algorithm_version(kAlgorithmVersion);
      request.set_name(std::to_string(i));
      grpc::ClientContext context;
      v1::RegisterResponse response;
      WEFT_CHECK(stubs_[0]->Register(&context, request, &response).ok());
      session.acquire.set_incarnation(request.incarnation());
      session.release.set_incarnation(request.incarnation());
      session.heartbeat.set_incarnation(request.incarnation());
    }
  }

  void Run(int seconds) {
    const auto begin = steady_clock::now();
    const int calls = seconds * kCallsPerSecond;
    size_t next = 0;
    for (int i = 0; i < calls; ++i) {
      std::this_thread::sleep_until(begin + std::chrono::seconds(1) * i / kCallsPerSecond);
      next = (next + 1) % sessions_.size();
      Start(next);
    }
    MutexLock lock(&mu_);
    while (under_way_ > 0) idle_.Wait(&mu_);
  }

  void Print() {
    MutexLock lock(&mu_);
    std::sort(latencies_.begin(), latencies_.end());
    const auto at = [&](double q) {
      mu_.AssertHeld();
      return latencies_[static_cast<size_t>(q * static_cast<double>(latencies_.size() - 1))];
    };
    std::printf("calls=%zu refused=%d skipped=%d p50=%.2f ms p90=%.2f ms p99=%.2f ms max=%.2f ms\n",
                latencies_.size(), refused_, skipped_, at(0.5), at(0.9), at(0.99), at(1));
  }

 private:
  void Start(size_t i) {
    Session& session = sessions_[i];
    v1::LockService::Stub& stub = *stubs_[i % stubs_.size()];
    {
      MutexLock lock(&mu_);
      if (session.busy) {
        ++skipped_;
        return;
      }
      session.busy = true;
      ++under_way_;
    }
    const auto begin = steady_clock::now();
    if (std::exchange(session.beat_next, !session.beat_next)) {
      auto* call = new Pending<v1::HeartbeatResponse>();
      session.heartbeat.set_progress(session.heartbeat.progress() + 1);
      stub.async()->Heartbeat(&call->context, &session.heartbeat, &call->response,
                              [=, this](const grpc::Status& status) {
                                delete call;
                                End(i, begin, status);
                              });
    } else if (session.has_grant) {
      auto* call = new Pending<v1::ReleaseBucketResponse>();
      session.has_grant = false;
      session.heartbeat.clear_tokens();
      stub.async()->ReleaseBucket(&call->context, &session.release, &call->response,
                                  [=, this](const grpc::Status& status) {
                                    delete call;
                                    End(i, begin, status);
                                  });
    } else {
      auto* call = new Pending<v1::AcquireBucketResponse>();
      session.acquire.set_number(session.acquire.number() + 1);
      stub.async()->AcquireBucket(&call->context, &session.acquire, &call->response,
                                  [=, this](const grpc::Status& status) {
                                    if (status.ok()) Keep(call->response.grant(), &sessions_[i]);
                                    delete call;
                                    End(i, begin, status);
                                  });
    }
  }

  static void Keep(const v1::Grant& grant, Session* session) {
    if (grant.token() == 0) {
      session->acquire.set_number(session->acquire.number() - 1);
      return;
    }
    session->has_grant = true;
    session->heartbeat.add_tokens(grant.token());
    v1::ReleaseBucketRequest& release = session->release;
    release.set_token(grant.token());
    release.clear_stored();
    release.clear_buckets();
    session->acquire.clear_resident();
    for (const v1::GrantedPartition& partition : grant.partitions()) {
      v1::VersionInfo* stored = release.add_stored();
      *stored->mutable_version() = partition.base().version();
      stored->mutable_version()->set_token(grant.token());
      v1::ShardInfo* shard = stored->add_shards();
      shard->set_num_rows(1000);
      shard->add_places()->set_store_id(kStore);
      *session->acquire.add_resident() = stored->version();
    }
    for (const v1::GrantedBucket& bucket : grant.buckets()) {
      v1::BucketReport* report = release.add_buckets();
      *report->mutable_bucket() = bucket.bucket();
      report->set_trained_edges(bucket.expected_edges());
    }
  }

  void End(size_t i, steady_clock::time_point begin, const grpc::Status& status) {
    const double ms =
        std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
    MutexLock lock(&mu_);
    latencies_.push_back(ms);
    refused_ += status.ok() ? 0 : 1;
    sessions_[i].busy = false;
    if (--under_way_ == 0) idle_.SignalAll();
  }

  std::vector<std::unique_ptr<v1::LockService::Stub>> stubs_;
  std::vector<Session> sessions_;
  Mutex mu_;
  CondVar idle_;
  int under_way_ ABSL_GUARDED_BY(mu_) = 0;
  int refused_ ABSL_GUARDED_BY(mu_) = 0;
  int skipped_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<double> latencies_ ABSL_GUARDED_BY(mu_);
};

int Main(int seconds) {
  const char* base = std::getenv("TMPDIR");
  const std::string folder = std::string(base == nullptr ? "/tmp" : base) + "/weft_service_bench";
  std::filesystem::remove_all(folder);
  auto store = *RocksDbRunStore::Open(folder);
  RunPlan plan = testing::MakePlan(kPartitions);
  plan.commit_seconds = 0;
  plan.cluster.emplace();
  auto run = *RunCoordinator::Start(plan, testing::MakeState(kPartitions), store.get());
  WEFT_CHECK(run->Sync({{ServerRole::kPartition, kStore, 1, "h:1", true}, 1, {}, {}, {}}).ok());
  {
    RunLoop loop(run.get(), store.get(), Clock::Real(),
                 [](const absl::Status&) { WEFT_CHECK(false); });
    LockServiceImpl service({}, run.get(), &loop, Clock::Real());
    auto server =
        *ServerRunner::Start({.security = {}, .on_drain = [&loop] { loop.Drain(); }}, {&service});
    Load load(server->address());
    load.Run(seconds);
    load.Print();
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc > 1 ? std::atoi(argv[1]) : 10); }
