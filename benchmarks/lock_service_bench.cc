// How long calls to a lock server take over gRPC, at a paced 4,000 calls a second of 1,000
// sessions, P = 1,024. Client and server share this machine.
//
//   lock_service_bench [seconds] [sessions]   the folder is $TMPDIR: it should be on a real disk
//
// The sessions take turns. In each turn a session sends a heartbeat or, the next time, what its
// work needs: it acquires a bucket, and releases it half a second later. A session that gets no
// bucket asks again and waits, as trainers do; that call is answered when there is a bucket, is no
// part of the pace and not counted. Partition servers hold their long polls. A call takes from the
// moment when it was to be sent, so one that is sent late because others are slow counts in full.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/common/check.h"
#include "services/common/mutex.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/rpc/server_runner.h"
#include "services/lock_server/lock_service_impl.h"
#include "services/lock_server/rocksdb_run_store.h"
#include "tests/lock_server/coordinator_fixture.h"

namespace weft {
namespace {

using std::chrono::steady_clock;

constexpr int kPartitions = 1024;
constexpr int kCallsPerSecond = 4000;
constexpr std::chrono::nanoseconds kPace{1'000'000'000 / kCallsPerSecond};
constexpr int kServers = 4;
constexpr int kChannels = 8;
constexpr int64_t kWaitMs = 10'000;

enum Kind { kHeartbeat, kAcquire, kRelease, kKinds };

ServerInfo PartitionServer(int i) {
  return {ServerRole::kPartition, static_cast<StoreId>(11 + i), 1, "h:1", true};
}

struct Session {
  v1::AcquireBucketRequest acquire;
  v1::ReleaseBucketRequest release;  // of its grant; token 0: it has none
  bool beats = false;                // in this turn
  bool working = false;              // acquires or releases
};

// A call under way.
template <typename Request, typename Response>
struct Pending {
  grpc::ClientContext context;
  Request request;
  Response response;
};

class Load {
 public:
  Load(const std::string& address, int sessions) : sessions_(static_cast<size_t>(sessions)) {
    for (int i = 0; i < kChannels; ++i) {
      auto channel = MakeChannel(address, Role::kLockServer, {}, i);
      WEFT_CHECK(channel.ok());
      stubs_.push_back(v1::LockService::NewStub(*channel));
    }
    for (size_t i = 0; i < sessions_.size(); ++i) {
      v1::RegisterRequest request;
      request.set_incarnation(1000 + i);
      request.set_protocol_version(kProtocolVersion);
      request.set_algorithm_version(kAlgorithmVersion);
      request.set_name(std::to_string(i));
      grpc::ClientContext context;
      v1::RegisterResponse response;
      WEFT_CHECK(stub(i).Register(&context, request, &response).ok());
      sessions_[i].acquire.set_incarnation(request.incarnation());
      sessions_[i].release.set_incarnation(request.incarnation());
      known_servers_ = response.servers().revision();
    }
    for (int i = 0; i < kServers; ++i) Poll(i, 0);
  }

  void Run(int seconds) {
    const auto begin = steady_clock::now();
    const int64_t calls = int64_t{seconds} * kCallsPerSecond;
    for (int64_t i = 0; i < calls; ++i) {
      const auto planned = begin + i * kPace;
      std::this_thread::sleep_until(planned);
      Turn(static_cast<size_t>(i) % sessions_.size(), planned);
    }
    MutexLock lock(&mu_);
    while (paced_ > 0) changed_.Wait(&mu_);
  }

  // What came since the last time.
  void Print(const char* when) {
    MutexLock lock(&mu_);
    std::vector<double> all;
    for (const std::vector<double>& kind : latencies_) {
      all.insert(all.end(), kind.begin(), kind.end());
    }
    std::printf("%s: refused=%d acquires that waited=%d\n", when, refused_, waited_);
    PrintKind("all", &all);
    PrintKind("heartbeat", &latencies_[kHeartbeat]);
    PrintKind("acquire", &latencies_[kAcquire]);
    PrintKind("release", &latencies_[kRelease]);
    for (std::vector<double>& kind : latencies_) kind.clear();
    refused_ = waited_ = 0;
  }

  // Nothing is sent any more; `answer_all` has the server answer the calls that wait.
  void End(const std::function<void()>& answer_all) {
    {
      MutexLock lock(&mu_);
      ending_ = true;
    }
    answer_all();
    MutexLock lock(&mu_);
    while (waiting_ > 0) changed_.Wait(&mu_);
  }

 private:
  static void PrintKind(const char* name, std::vector<double>* latencies) {
    if (latencies->empty()) return;
    std::ranges::sort(*latencies);
    const auto at = [&](double q) {
      return (*latencies)[static_cast<size_t>(q * static_cast<double>(latencies->size() - 1))];
    };
    std::printf("  %-9s calls=%zu p50=%.2f ms p90=%.2f ms p99=%.2f ms max=%.2f ms\n", name,
                latencies->size(), at(0.5), at(0.9), at(0.99), at(1));
  }

  v1::LockService::Stub& stub(size_t i) { return *stubs_[i % stubs_.size()]; }

  // Sends a call; `done(status, response)` when it is answered.
  template <typename Response, typename Request, typename Send, typename Done>
  void Start(const Request& request, const Send& send, Done done) {
    auto* call = new Pending<Request, Response>();
    call->request = request;
    send(&call->context, &call->request, &call->response, [call, done](const grpc::Status& status) {
      const Response response = std::move(call->response);
      delete call;
      done(status, response);
    });
  }

  void Turn(size_t i, steady_clock::time_point planned) {
    Session& session = sessions_[i];
    bool beats = false;
    Token token = 0;
    {
      MutexLock lock(&mu_);
      ++paced_;
      beats = std::exchange(session.beats, !session.beats) || session.working;
      token = session.release.token();
      session.working = session.working || !beats;
    }
    if (beats) {
      Beat(i, token, planned);
    } else if (token != 0) {
      Release(i, planned);
    } else {
      Acquire(i, planned);
    }
  }

  void Beat(size_t i, Token token, steady_clock::time_point planned) {
    v1::HeartbeatRequest request;
    request.set_incarnation(1000 + i);
    request.set_known_servers(known_servers_);
    request.set_progress(static_cast<uint64_t>(planned.time_since_epoch().count()));
    if (token != 0) request.add_tokens(token);
    Start<v1::HeartbeatResponse>(
        request, [&](auto... args) { stub(i).async()->Heartbeat(args...); },
        [=, this](const grpc::Status& status, const v1::HeartbeatResponse&) {
          MutexLock lock(&mu_);
          Count(kHeartbeat, planned, status);
        });
  }

  void Release(size_t i, steady_clock::time_point planned) {
    Start<v1::ReleaseBucketResponse>(
        sessions_[i].release, [&](auto... args) { stub(i).async()->ReleaseBucket(args...); },
        [=, this](const grpc::Status& status, const v1::ReleaseBucketResponse&) {
          MutexLock lock(&mu_);
          sessions_[i].release.set_token(0);
          sessions_[i].working = false;
          Count(kRelease, planned, status);
        });
  }

  void Acquire(size_t i, steady_clock::time_point planned) {
    v1::AcquireBucketRequest& request = sessions_[i].acquire;
    request.set_number(request.number() + 1);
    request.set_wait_ms(0);
    Start<v1::AcquireBucketResponse>(
        request, [&](auto... args) { stub(i).async()->AcquireBucket(args...); },
        [=, this](const grpc::Status& status, const v1::AcquireBucketResponse& response) {
          bool waits = false;
          {
            MutexLock lock(&mu_);
            Count(kAcquire, planned, status);
            waits = !TakeGrant(response.grant(), &sessions_[i]) && status.ok() && !ending_;
            sessions_[i].working = waits;
            waiting_ += waits ? 1 : 0;
          }
          if (waits) WaitForBucket(i);
        });
  }

  void WaitForBucket(size_t i) {
    v1::AcquireBucketRequest& request = sessions_[i].acquire;
    request.set_wait_ms(kWaitMs);
    Start<v1::AcquireBucketResponse>(
        request, [&](auto... args) { stub(i).async()->AcquireBucket(args...); },
        [=, this](const grpc::Status& status, const v1::AcquireBucketResponse& response) {
          bool again = false;
          {
            MutexLock lock(&mu_);
            again = !TakeGrant(response.grant(), &sessions_[i]) && status.ok() && !ending_;
            sessions_[i].working = again;
            if (!again) {
              --waiting_;
              ++waited_;
              changed_.SignalAll();
            }
          }
          if (again) WaitForBucket(i);
        });
  }

  bool TakeGrant(const v1::Grant& grant, Session* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (grant.token() == 0) return false;
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
      shard->add_places()->set_store_id(grant.store_at(0));
      *session->acquire.add_resident() = stored->version();
    }
    for (const v1::GrantedBucket& bucket : grant.buckets()) {
      v1::BucketReport* report = release.add_buckets();
      *report->mutable_bucket() = bucket.bucket();
      report->set_trained_edges(bucket.expected_edges());
    }
    return true;
  }

  // A partition server: asks for its orders, again and again.
  void Poll(int server, uint64_t revision) {
    v1::StoreSyncRequest request;
    *request.mutable_server() = ToProto(PartitionServer(server));
    request.set_free_bytes(uint64_t{1} << 40);
    request.set_known_revision(revision);
    request.set_wait_ms(kWaitMs);
    {
      MutexLock lock(&mu_);
      if (ending_) return;
      ++waiting_;
    }
    Start<v1::StoreSyncResponse>(
        request,
        [&](auto... args) { stub(static_cast<size_t>(server)).async()->StoreSync(args...); },
        [=, this](const grpc::Status& status, const v1::StoreSyncResponse& response) {
          WEFT_CHECK(status.ok());
          Poll(server, response.revision());
          MutexLock lock(&mu_);
          --waiting_;
          changed_.SignalAll();
        });
  }

  void Count(Kind kind, steady_clock::time_point planned, const grpc::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto taken = std::chrono::duration<double, std::milli>(steady_clock::now() - planned);
    latencies_[kind].push_back(taken.count());
    refused_ += status.ok() ? 0 : 1;
    if (--paced_ == 0) changed_.SignalAll();
  }

  std::vector<std::unique_ptr<v1::LockService::Stub>> stubs_;
  uint64_t known_servers_ = 0;
  Mutex mu_;
  CondVar changed_;
  // A session's requests belong to whoever has set that it is working.
  std::vector<Session> sessions_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  int paced_ ABSL_GUARDED_BY(mu_) = 0;    // calls under way that count
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;  // those that wait
  int waited_ ABSL_GUARDED_BY(mu_) = 0;
  int refused_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<double> latencies_[kKinds] ABSL_GUARDED_BY(mu_);
};

int Main(int seconds, int sessions) {
  const char* base = std::getenv("TMPDIR");
  const std::string folder = std::string(base == nullptr ? "/tmp" : base) + "/weft_service_bench";
  std::filesystem::remove_all(folder);
  auto store = *RocksDbRunStore::Open(folder);
  RunPlan plan = testing::MakePlan(kPartitions);
  plan.bucket_order = BucketOrder::kInsideOut;  // the default
  plan.commit_seconds = 0;
  plan.cluster.emplace();
  auto run = *RunCoordinator::Start(plan, testing::MakeState(kPartitions), store.get());
  for (int i = 0; i < kServers; ++i) {
    WEFT_CHECK(run->Sync({PartitionServer(i), uint64_t{1} << 40, {}, {}, {}}).ok());
  }
  {
    RunLoop loop(run.get(), store.get(), Clock::Real(),
                 [](const absl::Status&) { WEFT_CHECK(false); });
    LockServiceImpl service({}, run.get(), &loop, Clock::Real());
    auto server =
        *ServerRunner::Start({.security = {}, .on_drain = [&loop] { loop.Drain(); }}, {&service});
    Load load(server->address(), sessions);
    // Until all partitions have been trained, most sessions wait for those that have been.
    load.Run(seconds);
    load.Print("the first seconds of the first pass");
    load.Run(seconds);
    load.Print("later");
    load.End([&] { server->Drain(); });
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  return weft::Main(argc > 1 ? std::atoi(argv[1]) : 10, argc > 2 ? std::atoi(argv[2]) : 1000);
}
