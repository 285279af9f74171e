// weft-partition-server as a process, with a lock server that only registers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "services/common/check.h"
#include "services/common/mutex.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/rpc/server_runner.h"
#include "services/partition_server/grpc_blob_client.h"
#include "tests/partition_server/blob_testing.h"
#include "tests/testing/run_program.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "weft/v1/lock_service.grpc.pb.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// Takes every store into its run and gives no orders.
class RegisteringLockService : public v1::LockService::Service {
 public:
  explicit RegisteringLockService(std::string run_id) : run_id_(std::move(run_id)) {}

  grpc::Status StoreSync(grpc::ServerContext* context, const v1::StoreSyncRequest* request,
                         v1::StoreSyncResponse* response) override {
    response->mutable_context()->set_run_id(run_id_);
    response->mutable_context()->set_term(3);
    response->mutable_context()->set_lock_server(9);
    response->set_revision(1);
    response->set_phase(v1::RUN_PHASE_RUNNING);
    MutexLock lock(&mu_);
    requests_.push_back(*request);
    changed_.SignalAll();
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(request->wait_ms());
    while (request->known_revision() == 1 && !context->IsCancelled() &&
           std::chrono::steady_clock::now() < deadline) {
      changed_.WaitUntil(&mu_, std::min(deadline, std::chrono::steady_clock::now() +
                                                      std::chrono::milliseconds(20)));
    }
    return grpc::Status::OK;
  }

  // The first request that `matches`, when it has come.
  template <typename Matches>
  v1::StoreSyncRequest WaitFor(Matches matches) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    MutexLock lock(&mu_);
    for (;;) {
      const auto found = std::ranges::find_if(requests_, matches);
      if (found != requests_.end()) return *found;
      WEFT_CHECK(changed_.WaitUntil(&mu_, deadline) || std::chrono::steady_clock::now() < deadline);
    }
  }
  void Forget() {
    MutexLock lock(&mu_);
    requests_.clear();
  }

 private:
  const std::string run_id_;
  Mutex mu_;
  CondVar changed_;
  std::vector<v1::StoreSyncRequest> requests_ ABSL_GUARDED_BY(mu_);
};

class PartitionServerProcessTest : public ::testing::Test {
 protected:
  PartitionServerProcessTest() : runner(*ServerRunner::Start({}, {&lock_service})) {}

  std::unique_ptr<RunningProgram> Start(const std::string& store) {
    return std::make_unique<RunningProgram>(std::vector<std::string>{
        std::getenv("WEFT_BINARY_DIR") + std::string("/bin/weft-partition-server"), "--lock-server",
        runner->address(), "--data-dir", dir.File("data"), "--store", store});
  }

  // What the server says of itself once it is registered.
  ServerInfo Registered() {
    const v1::StoreSyncRequest request =
        lock_service.WaitFor([](const v1::StoreSyncRequest& r) { return r.known_revision() == 1; });
    return *FromProto(request.server());
  }

  absl::StatusOr<Place> Put(const ServerInfo& server, const std::string& content) {
    const std::vector<uint64_t> checksums = {SegmentChecksum({content})};
    return client.Put(server.address, kName, InfoOf(content), checksums,
                      [&](int64_t) { return BytePieces{content}; });
  }

  absl::Status Get(const ServerInfo& server, const std::string& content) {
    return client.Get(server.address, kName, InfoOf(content),
                      [](auto...) { return absl::OkStatus(); });
  }

  static constexpr ShardName kName = {{{0, 0}, 7}, 0};
  const std::string run_id = std::string(32, 'a');
  const std::string content = Content(1, 1000);
  TempDir dir;
  RegisteringLockService lock_service{run_id};
  std::unique_ptr<ServerRunner> runner;
  ChannelPool channels{{}};
  RunFence fence{{run_id, 3, 9, std::nullopt}};
  GrpcBlobClient client{&channels, &fence, {}};
};

TEST_F(PartitionServerProcessTest, AMemoryStoreThatIsAskedToEndMakesItsBlobsDurableAndSaysSo) {
  auto server = Start("memory");
  const ServerInfo first = Registered();
  EXPECT_FALSE(first.durable);
  EXPECT_EQ(Put(first, content)->incarnation, first.incarnation);

  server->Signal(SIGTERM);
  const ProgramResult ended = server->Wait();

  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const v1::StoreSyncRequest last =
      lock_service.WaitFor([](const v1::StoreSyncRequest& r) { return r.persisted_size() > 0; });
  EXPECT_EQ(FromProto(last.persisted(0)), kName);
  lock_service.Forget();

  server = Start("memory");
  const ServerInfo second = Registered();
  EXPECT_EQ(second.store_id, first.store_id);
  EXPECT_NE(second.incarnation, first.incarnation);
  EXPECT_THAT(Get(second, content), IsOk());
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait().exit_code, 0);
}

TEST_F(PartitionServerProcessTest, ADurableStoreHasWhatItAcknowledgedAfterBeingKilled) {
  auto server = Start("rocksdb");
  const ServerInfo first = Registered();
  EXPECT_TRUE(first.durable);
  EXPECT_EQ(Put(first, content)->incarnation, 0u);
  server->Signal(SIGKILL);
  server->Wait();
  lock_service.Forget();

  server = Start("rocksdb");

  EXPECT_THAT(Get(Registered(), content), IsOk());
}

TEST_F(PartitionServerProcessTest, AStoreOfAnotherRunEndsAndNamesBoth) {
  auto server = Start("rocksdb");
  Registered();
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait().exit_code, 0);
  runner.reset();
  RegisteringLockService other(std::string(32, 'b'));
  runner = *ServerRunner::Start({}, {&other});

  const ProgramResult ended = Start("rocksdb")->Wait();

  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out + ended.err, HasSubstr(run_id));
  EXPECT_THAT(ended.out + ended.err, HasSubstr(std::string(32, 'b')));
}

TEST_F(PartitionServerProcessTest, TwoProcessesDoNotShareAFolder) {
  const auto server = Start("rocksdb");
  Registered();

  const ProgramResult second = Start("rocksdb")->Wait();

  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.out + second.err, HasSubstr("another process"));
}

TEST_F(PartitionServerProcessTest, WrongArgumentsAreNamed) {
  EXPECT_EQ(Start("tape")->Wait().exit_code, 2);
  EXPECT_THAT(Start("tape")->Wait().err, HasSubstr("--store"));
}

}  // namespace
}  // namespace weft::testing
