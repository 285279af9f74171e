#include "services/lock_server/local_run_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "services/common/store_sync.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

// Two partitions, edges at the partition servers.
RunConfig Config() {
  RunConfig config;
  config.entities = {{"user", 2, false, {}}};
  config.relations = {{.name = "knows", .lhs = 0, .rhs = 0}};
  config.dimension = 4;
  config.entity_path = "/nowhere";
  config.edge_paths = {"cluster://train", "cluster://more"};
  config.checkpoint_path = "/nowhere";
  config.max_edges_per_chunk = 10;
  return config;
}

// What was stored of a run that waits, with an import of 25 edges in (0, 1) of the second path.
RunState Waiting(bool complete) {
  RunState state = MakeClusterRun(Config(), 1)->state;
  state.term = 4;
  state.servers = {{{ServerRole::kPartition, 11, 1, "host:1", true}, false}};
  state.edge_import.token = 40;
  state.edge_import.complete = complete;
  state.edge_import.edges.paths = {{"cluster://train", 6, 0, 0}, {"cluster://more", 7, 1, 25}};
  state.edge_import.edges.entity_counts = {{30, 40}};
  state.edge_import.edges.entities_digest = 9;
  const std::vector<Place> places = {{11, 0}};
  state.places.Set(EdgesVersion(40, 1, {0, 1}, 2, 2),
                   {{0, 0, 20, 240, 1, places}, {1, 20, 5, 60, 2, places}});
  return state;
}

TEST(LocalRunSetupTest, ARunWhoseEdgesAreToComeKnowsNothingOfThem) {
  const auto setup = MakeClusterRun(Config(), 1);

  ASSERT_THAT(setup, IsOk());
  EXPECT_THAT(setup->plan.bucket_edges, IsEmpty());
  EXPECT_THAT(setup->state.bucket_edges, IsEmpty());
  EXPECT_EQ(setup->state.edge_paths[1].path, "cluster://more");
  EXPECT_THAT(setup->plan.cluster->import_schema, Contains("entities.user.num_partitions=2"));
}

TEST(LocalRunSetupTest, TheRunIsMadeFromWhatAnImportBrought) {
  const RunState before = Waiting(/*complete=*/true);

  const auto setup = ContinueClusterRun(Config(), before, 1);

  ASSERT_THAT(setup, IsOk());
  const RunState& state = setup->state;
  EXPECT_EQ(state.run_id, before.run_id);
  EXPECT_EQ(state.seed, before.seed);
  EXPECT_EQ(state.term, 4u);
  EXPECT_EQ(state.servers, before.servers);
  EXPECT_THAT(state.bucket_edges, ElementsAre(ElementsAre(0, 0, 0, 0), ElementsAre(0, 25, 0, 0)));
  EXPECT_EQ(setup->plan.bucket_edges, state.bucket_edges);
  EXPECT_EQ(state.position.num_edge_chunks, 3);
  EXPECT_THAT(state.shape.entity_types[0].counts, ElementsAre(30, 40));
  EXPECT_EQ(state.shape.entities_digest, 9u);
  EXPECT_EQ(state.edge_paths[1].digest, 7u);
  EXPECT_TRUE(state.places.IsReadable(EdgesVersion(40, 1, {0, 1}, 2, 2)));
  // From then on it is a run as any other.
  RunConfig other = Config();
  other.entities[0].num_partitions = 4;
  EXPECT_THAT(ContinueClusterRun(Config(), state, 1), IsOk());
  EXPECT_THAT(ContinueClusterRun(other, state, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("num_partitions")));
}

TEST(LocalRunSetupTest, AnImportUnderWayGoesOn) {
  const auto setup = ContinueClusterRun(Config(), Waiting(/*complete=*/false), 1);

  ASSERT_THAT(setup, IsOk());
  EXPECT_THAT(setup->state.bucket_edges, IsEmpty());
  EXPECT_EQ(setup->state.edge_import.token, 40u);
  EXPECT_TRUE(setup->state.places.IsReadable(EdgesVersion(40, 1, {0, 1}, 2, 2)));
}

TEST(LocalRunSetupTest, WhileItWaitsTheConfigurationMayChange) {
  RunConfig other = Config();
  other.entities[0].num_partitions = 4;
  const RunState before = Waiting(/*complete=*/true);

  const auto setup = ContinueClusterRun(other, before, 1);

  ASSERT_THAT(setup, IsOk());
  EXPECT_EQ(setup->state.run_id, before.run_id);
  EXPECT_EQ(setup->plan.num_lhs, 4);
  EXPECT_THAT(setup->state.bucket_edges, IsEmpty());
  EXPECT_EQ(setup->state.edge_import.token, kInitialToken);
  EXPECT_TRUE(setup->state.places.versions().empty());
}

}  // namespace
}  // namespace weft
