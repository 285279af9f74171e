#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/lock_server/local_run_recovery.h"
#include "services/lock_server/run_codec.h"
#include "tests/lock_server/coordinator_fixture.h"
#include "tests/partition_server/blob_testing.h"
#include "tests/partition_server/partition_server_fixture.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Keep = TestPartitionServer::Keep;

const RetryOptions kShort = {.patience = absl::Milliseconds(200)};

class RunRecoveryTest : public ::testing::Test {
 protected:
  // The manifest of this token, after so many passes.
  static std::string Manifest(Token token, int64_t pass) {
    RunState state = MakeState(2);
    state.run_id = kRunId;
    state.term = 2;
    state.generation = 7;
    state.origin = token;
    state.position.pass = pass;
    return EncodeState(state);
  }
  static void Keeps(TestPartitionServer* server, Token token, const std::string& bytes) {
    const ShardName name = {{{kManifestType, 2}, token}, 0};
    const auto upload = server->store.BeginUpload(name, InfoOf(bytes));
    ASSERT_THAT(upload, IsOk());
    ASSERT_THAT(AppendAll(upload->get(), bytes), IsOk());
    ASSERT_THAT((*upload)->Publish(), IsOk());
  }

  const TempDir dir;
  TestPartitionServer first{dir.File("first"), Keep::kMemory};
  TestPartitionServer second{dir.File("second"), Keep::kMemory};
};

TEST_F(RunRecoveryTest, GoesOnFromTheNewestManifestInALifeAboveAllThatWereSeen) {
  Keeps(&first, 5, Manifest(5, 1));
  Keeps(&second, 9, Manifest(9, 2));
  RunContext later = kContext;
  later.term = 40;
  later.generation = 80;
  ASSERT_THAT(first.store.Registered(later), IsOk());

  const auto run = RecoverRun({first.address(), second.address()}, {}, kShort);

  ASSERT_THAT(run, IsOk());
  EXPECT_EQ(run->run_id, kRunId);
  EXPECT_EQ(run->origin, 9u);
  EXPECT_EQ(run->position.pass, 2);
  EXPECT_GT(run->term, 40u);
  EXPECT_GT(run->generation, 80u);
  EXPECT_FALSE(run->parameters_ready);
}

TEST_F(RunRecoveryTest, WhatCannotBeReadIsPassedOver) {
  Keeps(&first, 5, Manifest(5, 1));
  Keeps(&first, 8, "no manifest");
  Keeps(&second, 9, Manifest(9, 2));
  second.faults->flip_bits = true;

  const auto run = RecoverRun({first.address(), second.address()}, {}, kShort);

  ASSERT_THAT(run, IsOk());
  EXPECT_EQ(run->origin, 5u);
}

TEST_F(RunRecoveryTest, ServersWithoutManifestsHaveNoRunToGoOnWith) {
  EXPECT_THAT(RecoverRun({first.address(), second.address()}, {}, kShort),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("2 partition servers")));
}

TEST_F(RunRecoveryTest, AServerOfAnotherRunOrNoneIsNamed) {
  Keeps(&first, 5, Manifest(5, 1));
  TestPartitionServer other(dir.File("other"), Keep::kMemory, /*registered=*/false);
  EXPECT_THAT(RecoverRun({first.address(), other.address()}, {}, kShort),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(other.address())));

  ASSERT_THAT(other.store.Registered({std::string(32, 'b'), 1, 1, std::nullopt}), IsOk());
  EXPECT_THAT(
      RecoverRun({first.address(), other.address()}, {}, kShort),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr(other.address()), HasSubstr(kRunId), HasSubstr("bbbbbbbb"))));
}

}  // namespace
}  // namespace weft::testing
