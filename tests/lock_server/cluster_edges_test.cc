// Edges that partition servers hold: a run that waits for them, the import that brings them, and
// what becomes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/lock_server/cluster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::ClusterRun;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FindOrder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::MakeClusterPlan;
using testing::MakeState;
using testing::ParamServer;
using testing::PartitionServer;
using testing::StatusIs;

constexpr SessionId kAnna = 1001;
constexpr StoreId kStore = 11;
const std::vector<Place> kPlaces = {{kStore, 0}};
const std::vector<std::string> kSchema = {"entities.user.num_partitions=2"};

// Two partitions; edges between different ones only, in the first of two shards three of them.
ImportedEdges TwoBuckets(uint64_t digest = 5) {
  ImportedEdges edges;
  edges.paths = {{"cluster://train", digest, 2, 20}};
  edges.entity_counts = {{30, 40}};
  return edges;
}

VersionInfo Edges(Token token, Bucket bucket, const std::vector<Place>& places = kPlaces) {
  VersionInfo info;
  info.version = EdgesVersion(token, 0, bucket, 2, 2);
  info.shards = {{0, 0, 3, 36, 1, places}, {1, 3, 7, 84, 2, places}};
  return info;
}

RunPlan WaitingPlan() {
  RunPlan plan = MakeClusterPlan(2, 1);
  plan.bucket_edges.clear();
  plan.cluster->import_schema = kSchema;
  return plan;
}

RunState WaitingState() {
  RunState state = MakeState(2);
  state.edge_paths = {{"cluster://train", 0}};
  return state;
}

// A run that waits, with a partition server.
struct WaitingRun : ClusterRun {
  WaitingRun() : ClusterRun(WaitingPlan(), WaitingState()) {
    WEFT_CHECK(Report(PartitionServer(kStore, 1)).ok());
  }
  absl::StatusOr<RunCoordinator::ImportTarget> Begin(const ImportedEdges& edges = TwoBuckets()) {
    auto target = coordinator->BeginImport(edges, kSchema);
    Sync();
    return target;
  }
  Token Bring() {
    const Token token = Begin()->token;
    WEFT_CHECK(coordinator->AddEdges(token, {Edges(token, {0, 1}), Edges(token, {1, 0})}).ok());
    WEFT_CHECK(coordinator->CompleteImport(token).ok());
    Sync();
    return token;
  }
};

// The run that follows: its lock server has made it from what was brought.
struct RunWithEdges : ClusterRun {
  RunWithEdges() : ClusterRun(Plan(), State()) {
    WEFT_CHECK(Report(PartitionServer(kStore, 1)).ok());
    Register(kAnna);
  }
  static RunPlan Plan() {
    RunPlan plan = MakeClusterPlan(2);
    plan.bucket_edges[0] = {0, 10, 10, 0};
    plan.cluster->import_schema = kSchema;
    return plan;
  }
  static RunState State() {
    WaitingRun before;
    const Token token = before.Bring();
    RunState state = WaitingState();
    state.term = 1;
    state.edge_import = {token, true, TwoBuckets()};
    state.bucket_edges = Plan().bucket_edges;
    state.servers = before.coordinator->state().servers;
    state.places = before.coordinator->state().places;
    return state;
  }
  Token token() const { return coordinator->state().edge_import.token; }
};

TEST(ClusterEdgesTest, ARunWithoutItsEdgesWaitsAndSaysForWhat) {
  WaitingRun run;

  EXPECT_EQ(run.coordinator->phase(), RunPhase::kPreparing);
  const RunView view = run.coordinator->View(true);
  EXPECT_THAT(view.missing_edges, ElementsAre("cluster://train"));
  EXPECT_THAT(view.reason, HasSubstr("weft import"));
  Registration anna;
  anna.incarnation = kAnna;
  EXPECT_THAT(run.coordinator->Register(anna),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cluster://train")));
  EXPECT_THAT(run.ReportParams(ParamServer(21), 0, 0), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(run.TakeLines(), Contains(HasSubstr("waits for the edges")));
  run.Pass(absl::Seconds(5));
  EXPECT_EQ(run.coordinator->phase(), RunPhase::kPreparing);
}

TEST(ClusterEdgesTest, TheyArriveAsAWholeAndSurviveARestart) {
  WaitingRun run;
  const auto begun = run.Begin();
  ASSERT_THAT(begun, IsOk());
  EXPECT_FALSE(begun->complete);
  const Token token = begun->token;
  ASSERT_THAT(run.coordinator->AddEdges(token, {Edges(token, {0, 1})}), IsOk());
  EXPECT_THAT(run.coordinator->CompleteImport(token),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("10 edges in 1 bucket")));
  EXPECT_FALSE(run.coordinator->edges_arrived());
  run.Sync();

  run.Restart();
  EXPECT_EQ(run.Begin()->token, token);
  ASSERT_THAT(run.coordinator->AddEdges(token, {Edges(token, {1, 0})}), IsOk());
  ASSERT_THAT(run.coordinator->CompleteImport(token), IsOk());
  EXPECT_TRUE(run.coordinator->edges_arrived());
  run.Sync();

  run.Restart();
  EXPECT_TRUE(run.coordinator->state().edge_import.complete);
  EXPECT_EQ(run.coordinator->state().edge_import.edges, TwoBuckets());
  EXPECT_THAT(run.coordinator->CompleteImport(token), IsOk());
}

TEST(ClusterEdgesTest, OtherEdgesTakeThePlaceOfThoseThatAreNotWhole) {
  WaitingRun run;
  const Token token = run.Begin()->token;
  ASSERT_THAT(run.coordinator->AddEdges(token, {Edges(token, {0, 1})}), IsOk());

  const Token other = run.Begin(TwoBuckets(/*digest=*/6))->token;

  EXPECT_NE(other, token);
  EXPECT_THAT(run.coordinator->AddEdges(token, {Edges(token, {1, 0})}),
              StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(run.coordinator->CompleteImport(token), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(run.coordinator->state().places.Find(Edges(token, {0, 1}).version), nullptr);
  EXPECT_THAT(run.coordinator->keep_list().keep_tokens, ElementsAre(other));
}

TEST(ClusterEdgesTest, ARunKeepsItsEdgesAndRefusesOthers) {
  RunWithEdges run;

  const auto same = run.coordinator->BeginImport(TwoBuckets(), kSchema);
  ASSERT_THAT(same, IsOk());
  EXPECT_TRUE(same->complete);
  EXPECT_THAT(run.coordinator->BeginImport(TwoBuckets(6), kSchema),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("other edges")));
  EXPECT_EQ(run.coordinator->state().edge_import.edges, TwoBuckets());
}

TEST(ClusterEdgesTest, ImportsOfAnotherConfigurationAreRefused) {
  WaitingRun run;
  EXPECT_THAT(run.coordinator->BeginImport(TwoBuckets(), {"entities.user.num_partitions=3"}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the run has entities.user.num_partitions=2, the import "
                                 "entities.user.num_partitions=3")));
  ImportedEdges elsewhere = TwoBuckets();
  elsewhere.paths[0].path = "cluster://valid";
  EXPECT_THAT(run.Begin(elsewhere),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cluster://valid")));
  ImportedEdges other_counts = TwoBuckets();
  other_counts.entity_counts = {{70}};
  EXPECT_THAT(run.Begin(other_counts), StatusIs(absl::StatusCode::kInvalidArgument));
  ClusterRun folders(MakeClusterPlan(2));
  EXPECT_THAT(folders.coordinator->BeginImport(TwoBuckets(), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("folders")));
}

TEST(ClusterEdgesTest, BucketsMustBeWholeAndWhereTheyStay) {
  WaitingRun run;
  const Token token = run.Begin()->token;
  const auto add = [&](const VersionInfo& bucket) {
    return run.coordinator->AddEdges(token, {bucket});
  };

  EXPECT_THAT(add(Edges(token, {0, 1}, {{99, 0}})),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(add(Edges(token, {0, 1}, {{kStore, 1}})),  // ends with its process
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(add(Edges(token, {0, 1}, {})), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(add(Edges(token, {2, 1})), StatusIs(absl::StatusCode::kInvalidArgument));
  VersionInfo gap = Edges(token, {0, 1});
  gap.shards[1].first_row = 4;
  EXPECT_THAT(add(gap), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_THAT(add(Edges(token, {0, 1})), IsOk());
  EXPECT_THAT(add(Edges(token, {0, 1})), IsOk());
  VersionInfo other = Edges(token, {0, 1});
  other.shards[0].xxh3 = 17;
  EXPECT_THAT(add(other), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ClusterEdgesTest, AGrantSaysWhereTheEdgesOfItsBucketsLie) {
  RunWithEdges run;

  const Grant grant = run.MustAcquire(kAnna, 1);

  const VersionInfo edges = Edges(run.token(), grant.buckets[0].bucket);
  EXPECT_THAT(grant.edges, Contains(edges.version));
  EXPECT_THAT(grant.places, Contains(edges));
}

TEST(ClusterEdgesTest, CopiesAreOnDiskAtMemoryStoresToo) {
  RunPlan plan = RunWithEdges::Plan();
  plan.cluster->partition_replicas = 2;
  ClusterRun run(plan, RunWithEdges::State());
  ASSERT_THAT(run.Report(PartitionServer(kStore, 1)), IsOk());
  const ServerInfo memory = PartitionServer(12, 1, /*durable=*/false);
  const auto order = FindOrder<CopyShard>(*run.Report(memory));
  ASSERT_TRUE(order.has_value());
  VersionInfo copied = {order->second.version, {order->second.shard}};
  copied.shards[0].places = {{12, 0}};

  ASSERT_THAT(run.Report(memory, {{order->first, absl::OkStatus(), copied}}), IsOk());

  const RunState state = run.coordinator->state();
  const PlaceTable::Shards* shards = state.places.Find(copied.version);
  EXPECT_THAT((*shards)[copied.shards[0].shard].places,
              ElementsAre(Place{kStore, 0}, Place{12, 0}));
}

TEST(ClusterEdgesTest, ARewindKeepsThem) {
  RunWithEdges run;
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kPlaces);

  ASSERT_THAT(run.coordinator->Rollback("id", 1), IsOk());

  EXPECT_TRUE(run.coordinator->state().places.IsReadable(Edges(run.token(), {0, 1}).version));
  EXPECT_THAT(run.coordinator->keep_list().keep_tokens, ElementsAre(run.token()));
}

TEST(ClusterEdgesTest, LostOnesAreToldAndTheSameImportBringsThemAgain) {
  RunWithEdges run;
  const Grant grant = run.MustAcquire(kAnna, 1);
  const VersionInfo edges = Edges(run.token(), grant.buckets[0].bucket);
  const auto left =
      run.coordinator->ReportUnreadable(kAnna, grant.token, {edges.version, 1}, kPlaces[0]);
  ASSERT_THAT(left, IsOk());
  EXPECT_THAT(*left, IsEmpty());
  const auto order = FindOrder<VerifyShard>(*run.Report(PartitionServer(kStore, 1)));
  ASSERT_TRUE(order.has_value());

  ASSERT_THAT(run.Report(PartitionServer(kStore, 1),
                         {{order->first, absl::NotFoundError("not here"), std::nullopt}}),
              IsOk());

  EXPECT_EQ(run.coordinator->context().generation, 1u);  // no rewind could mend it
  EXPECT_THAT(run.coordinator->View(false).reason, HasSubstr("edges of 1 buckets are lost"));
  EXPECT_FALSE(run.coordinator->BeginImport(TwoBuckets(), kSchema)->complete);
  ASSERT_THAT(run.coordinator->AddEdges(run.token(), {edges}), IsOk());
  EXPECT_EQ(run.coordinator->View(false).reason, "");
  EXPECT_TRUE(run.coordinator->BeginImport(TwoBuckets(), kSchema)->complete);
}

}  // namespace
}  // namespace weft
