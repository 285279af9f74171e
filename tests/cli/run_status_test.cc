#include "cli/run_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace weft::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::GetRunStateResponse SmallState() {
  v1::GetRunStateResponse state;
  state.mutable_context()->set_run_id("0123abcd");
  state.mutable_context()->set_term(2);
  state.mutable_context()->set_generation(1);
  state.set_phase(v1::RUN_PHASE_RUNNING);
  state.mutable_position()->set_epoch(1);
  state.mutable_position()->set_pass_id(1);
  state.set_num_epochs(5);
  state.set_buckets(4);
  state.set_buckets_done(1);
  state.set_edges(1000);
  state.set_edges_done(250);
  state.set_epoch_edges(1000);
  state.set_num_lhs(2);
  state.set_num_rhs(2);
  state.set_bucket_states(std::string{3, 2, 1, 1});
  v1::TrainerInfo* const trainer = state.add_trainers();
  trainer->set_name("trainer-0");
  trainer->set_lease_left_ms(29'500);
  trainer->add_buckets()->set_rhs(1);
  state.add_trainers()->set_name("trainer-1");
  v1::ServerInfo* const server = state.mutable_servers()->add_partition_servers();
  server->set_address("127.0.0.1:7001");
  server->set_store_id(9);
  state.add_silent_servers(9);
  v1::ManifestInfo* const manifest = state.add_manifests();
  manifest->set_version(1);
  manifest->mutable_position()->set_epoch(1);
  manifest->set_committed(true);
  manifest->set_preserved(true);
  return state;
}

TEST(RunStatusTest, ShowsProgressMatrixTrainersServersAndVersions) {
  const std::string text = FormatRunStatus(SmallState(), RunPace{2'500, absl::Seconds(100)});

  EXPECT_THAT(text, HasSubstr("run 0123abcd: running"));
  EXPECT_THAT(text, HasSubstr("epoch 2/5, pass 1: 1/4 buckets, 250/1,000 edges"));
  EXPECT_THAT(text, HasSubstr("1:40 left"));
  EXPECT_THAT(text, HasSubstr("  # *\n  . .\n"));
  EXPECT_THAT(text, HasSubstr("trainer-0: (0, 1), lease 29.5 s"));
  EXPECT_THAT(text, HasSubstr("trainer-1: waits"));
  EXPECT_THAT(text, HasSubstr("partition server 127.0.0.1:7001 (memory), silent"));
  EXPECT_THAT(text, HasSubstr("version 1: 1 epochs"));
  EXPECT_THAT(text, HasSubstr("committed, preserved"));
}

TEST(RunStatusTest, AMatrixThatDoesNotFitIsNotDrawn) {
  v1::GetRunStateResponse state = SmallState();
  state.set_bucket_states("xyz");

  EXPECT_THAT(FormatRunStatus(state, std::nullopt), Not(HasSubstr("buckets (#")));
}

TEST(RunStatusTest, ThePaceIsEdgesOfAllPassesBetweenTwoLooks) {
  const v1::GetRunStateResponse before = SmallState();
  v1::GetRunStateResponse now = before;
  now.mutable_position()->set_epoch(2);
  now.set_edges_done(0);

  const RunPace pace = Pace(before, now, absl::Seconds(3));

  EXPECT_DOUBLE_EQ(pace.edges_per_second, 250);
  ASSERT_TRUE(pace.left.has_value());
  EXPECT_EQ(*pace.left, absl::Seconds(12));
}

TEST(RunStatusTest, JsonHasTheSameForMachines) {
  const nlohmann::json json = nlohmann::json::parse(RunStatusToJson(SmallState()));

  EXPECT_EQ(json["phase"], "running");
  EXPECT_EQ(json["edges_done"], 250);
  EXPECT_EQ(json["trainers"][0]["buckets"][0][1], 1);
  EXPECT_EQ(json["partition_servers"][0]["silent"], true);
  EXPECT_EQ(json["versions"][0]["preserved"], true);
  EXPECT_EQ(json["bucket_states"][0], "#*");
}

}  // namespace
}  // namespace weft::cli
