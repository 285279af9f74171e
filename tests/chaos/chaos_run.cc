#include "tests/chaos/chaos_run.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/testing/free_port.h"
#include "tests/testing/test_seed.h"

namespace weft::testing {
namespace {

constexpr const char* kLockServer = "lock-server";
constexpr const char* kToLockServer = "proxy of trainer-0 to lock-server";
constexpr const char* kToPartitions = "proxy to partition-server-0";
constexpr absl::Duration kLook = absl::Milliseconds(50);

// "partition-server-1" is a "partition-server".
std::string RoleOf(const std::string& name) {
  const size_t digits = name.find_last_not_of("0123456789");
  return name[digits] == '-' ? name.substr(0, digits) : name;
}

}  // namespace

uint64_t ChaosSeed() {
  const uint64_t seed =
      TestSeed([] { return static_cast<uint64_t>(absl::ToUnixNanos(absl::Now())); });
  std::printf("seed: WEFT_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

ChaosRun::ChaosRun(const TrainWorld& world, const Options& options)
    : world_(world), options_(options), random_(options.seed, RandomUse::kTest) {
  LocalCluster::Options cluster;
  cluster.config = world.File("run.json");
  cluster.overrides = {"entity_path=" + world.File("entities"), "edge_paths=" + world.File("edges"),
                       "checkpoint_path=" + File("model"),
                       absl::StrCat("lease_seconds=", absl::ToDoubleSeconds(options.lease)),
                       // A bucket is given to trainers that are killed as often as chance wants.
                       "max_bucket_attempts=0", "commit_seconds=0"};
  cluster.overrides.insert(cluster.overrides.end(), options.overrides.begin(),
                           options.overrides.end());
  cluster.folder = File("cluster");
  cluster.trainers = options.trainers;
  cluster.partition_servers = options.partition_servers;
  cluster.param_servers = options.param_servers;
  cluster.store = options.store;
  cluster.on_event = [this](const std::string& event) { OnEvent(event); };
  cluster.restart_failed_servers = options.may_restart;
  if (options.proxies) {
    proxied_port_ = FreePort();
    for (const char* name : {kToLockServer, kToPartitions}) {
      proxies_[name] = std::make_unique<FaultProxy>();
    }
    cluster.on_launch = [this](const std::string& name, std::vector<std::string>* arguments) {
      OnLaunch(name, arguments);
    };
  }
  cluster_ = std::make_unique<LocalCluster>(cluster);
}

ChaosRun::~ChaosRun() {
  for (const auto& [name, until] : stopped_) Continue(name);
}

void ChaosRun::Continue(const std::string& name) {
  if (const auto proxy = proxies_.find(name); proxy != proxies_.end()) {
    proxy->second->Stall(false);
  } else {
    cluster_->processes().Find(name)->Signal(SIGCONT);
  }
}

void ChaosRun::OnLaunch(const std::string& name, std::vector<std::string>* arguments) {
  // The value of the flag, which is added if need be.
  const auto value = [&](const char* flag) -> std::string& {
    const auto at = std::ranges::find(*arguments, flag);
    if (at != arguments->end()) return *std::next(at);
    arguments->push_back(flag);
    return arguments->emplace_back();
  };
  if (name == "trainer-0") {
    std::string& address = value("--lock-server");
    proxies_[kToLockServer]->SetTarget(address);
    address = proxies_[kToLockServer]->address();
  }
  if (name == "partition-server-0") {
    const std::string listen = absl::StrCat("127.0.0.1:", proxied_port_);
    proxies_[kToPartitions]->SetTarget(listen);
    value("--listen") = listen;
    value("--advertise") = proxies_[kToPartitions]->address();
  }
}

std::string ChaosRun::File(const std::string& name) const {
  return world_.File(absl::StrCat(options_.name, "/", name));
}

void ChaosRun::Say(const std::string& what) const {
  std::printf("%7.2f s  epoch %lld, %lld of %lld buckets: %s\n",
              absl::ToDoubleSeconds(absl::Now() - begun_),
              static_cast<long long>(state_.position().epoch()),
              static_cast<long long>(state_.buckets_done()),
              static_cast<long long>(state_.buckets()), what.c_str());
  std::fflush(stdout);
}

void ChaosRun::OnEvent(const std::string& event) {
  const bool ours = absl::StrContains(event, absl::StrCat("signal ", SIGKILL));
  if (ours) return;
  Say(event);
  const bool server = !absl::StartsWith(event, "trainer");
  EXPECT_TRUE(server && options_.may_restart && !absl::StrContains(event, "by signal")) << event;
}

void ChaosRun::Kill(const std::string& name) {
  Say("kill " + name);
  stopped_.erase(name);
  ++done_[absl::StrCat("kill ", RoleOf(name))];
  cluster_->processes().Find(name)->Signal(SIGKILL);
}

void ChaosRun::Stop(const std::string& name, absl::Duration duration) {
  Say(absl::StrCat("stop ", name, " for ", absl::FormatDuration(duration)));
  ++done_[absl::StrCat("stop ", RoleOf(name))];
  cluster_->processes().Find(name)->Signal(SIGSTOP);
  stopped_[name] = absl::Now() + duration;
}

void ChaosRun::Restart(const std::string& name) {
  Say("restart " + name);
  ++done_[absl::StrCat("restart ", RoleOf(name))];
  cluster_->processes().Restart(name);
}

void ChaosRun::Stall(const std::string& proxy, absl::Duration duration) {
  Say(absl::StrCat("stall the ", proxy, " for ", absl::FormatDuration(duration)));
  ++done_["stall proxy"];
  proxies_.at(proxy)->Stall(true);
  stopped_[proxy] = absl::Now() + duration;
}

void ChaosRun::Cut(const std::string& proxy) {
  Say("cut the " + proxy);
  ++done_["cut proxy"];
  proxies_.at(proxy)->Cut();
}

bool ChaosRun::Over() const {
  if (state_.phase() != v1::RUN_PHASE_DONE || state_.manifests().empty()) return false;
  return std::ranges::all_of(state_.manifests(), [](const v1::ManifestInfo& manifest) {
    return manifest.committed() || manifest.broken();
  });
}

int64_t ChaosRun::EdgesDone() const {
  return state_.position().pass_id() * world_.num_edges() + state_.edges_done();
}

int64_t ChaosRun::EdgesInAll() const { return state_.num_epochs() * world_.num_edges(); }

// Looks after the processes, and at the run.
void ChaosRun::Step() {
  const absl::Time now = absl::Now();
  for (auto it = stopped_.begin(); it != stopped_.end();) {
    if (it->second > now) {
      ++it;
      continue;
    }
    Continue(it->first);
    it = stopped_.erase(it);
  }
  const absl::Status status = cluster_->processes().Supervise();
  EXPECT_TRUE(status.ok()) << status;
  if (stopped_.contains(kLockServer)) {
    absl::SleepFor(kLook);  // whom it would be asked of is stopped
    return;
  }
  const auto state = cluster_->lock_server().GetRunState(true, state_.revision(), kLook);
  if (IsTransient(state.status())) return;
  EXPECT_TRUE(state.ok()) << state.status();
  if (!state.ok()) return;
  state_ = *state;
  if (const auto newest = cluster_->lock_server().GetCheckpoint(0); newest.ok()) {
    CheckVersion(*newest);
  }
}

void ChaosRun::CheckVersion(const v1::GetCheckpointResponse& checkpoint) {
  const int64_t version = checkpoint.manifest().version();
  if (version == last_version_) return;
  EXPECT_TRUE(version > last_version_ || options_.may_rewind)
      << "version " << version << " after " << last_version_;
  last_version_ = version;
  std::set<std::pair<int, int>> buckets;
  int64_t edges = 0;
  for (const v1::BucketReport& report : checkpoint.buckets()) {
    EXPECT_TRUE(buckets.emplace(report.bucket().lhs(), report.bucket().rhs()).second)
        << "twice in version " << version << ": " << report.bucket().DebugString();
    edges += report.trained_edges() + report.held_out_edges();
  }
  EXPECT_EQ(edges, world_.num_edges()) << "version " << version;
  EXPECT_EQ(checkpoint.manifest().position().pass_id(), version);
  for (const v1::VersionInfo& partition : checkpoint.partitions()) {
    EXPECT_GT(partition.shards_size(), 0)
        << "version " << version << ": " << partition.ShortDebugString();
  }
  versions_.insert(version);
  edges_checked_ += edges;
}

v1::GetRunStateResponse ChaosRun::Await(const std::string& what,
                                        const LocalCluster::Condition& condition) {
  const absl::Time deadline = begun_ + options_.within;
  while (!::testing::Test::HasFailure() && absl::Now() < deadline) {
    Step();
    if (state_.phase() == v1::RUN_PHASE_FAILED) break;
    if (Over() || condition(state_)) return state_;
  }
  ADD_FAILURE() << "waited in vain: " << what << "\n" << state_.DebugString() << cluster_->Logs();
  return state_;
}

// Everything once, in random order: also a short run meets all roles.
void ChaosRun::FillDeck() {
  std::set<std::string> roles;
  for (const std::string& name : cluster_->processes().Names()) {
    deck_.push_back({Action::kKill, name});
    // Trainers hold most of what can be lost.
    if (absl::StartsWith(name, "trainer")) deck_.push_back({Action::kKill, name});
    if (!roles.insert(RoleOf(name)).second) continue;
    deck_.push_back({Action::kStop, name});
    deck_.push_back({Action::kRestart, name});
  }
  for (const auto& [name, proxy] : proxies_) {
    deck_.push_back({Action::kStall, name});
    deck_.push_back({Action::kCut, name});
  }
  for (size_t i = deck_.size(); i > 1; --i) {
    std::swap(deck_[i - 1], deck_[random_.Below(static_cast<uint32_t>(i))]);
  }
}

void ChaosRun::DisturbOnce() {
  const auto [action, name] = deck_.back();
  deck_.pop_back();
  const absl::Duration longer = options_.lease * (1.1 + static_cast<double>(random_.Uniform()));
  switch (action) {
    case Action::kKill:
      return Kill(name);
    case Action::kStop:
      return Stop(name, longer);
    case Action::kRestart:
      return Restart(name);
    case Action::kStall:
      return Stall(name, longer);
    case Action::kCut:
      return Cut(name);
  }
}

void ChaosRun::Run() {
  const auto random_share = [this] { return static_cast<double>(random_.Uniform()); };
  Await("the first bucket", [](const auto& state) { return state.edges_done() > 0; });
  while (kills() < options_.kills && !Over()) {
    if (deck_.empty()) FillDeck();
    // Of what is done about three in eight are kills.
    const int left = 3 * (options_.kills - kills());
    // What was thrown back has to be gained, too: so every run comes to its end.
    int64_t from = EdgesDone();
    const auto wanted = static_cast<int64_t>(static_cast<double>(EdgesInAll() - from) / (left + 1) *
                                             (0.5 + random_share()));
    Await("progress", [&](const auto&) {
      from = std::min(from, EdgesDone());
      return EdgesDone() - from >= wanted;
    });
    const absl::Time at = absl::Now() + absl::Milliseconds(200) * random_share();
    Await("the moment", [&](const auto&) { return absl::Now() >= at; });
    if (::testing::Test::HasFailure()) return;
    if (!Over()) DisturbOnce();
  }
  Finish();
}

void ChaosRun::Finish() {
  Await("the run's end", [](const auto&) { return false; });
  if (::testing::Test::HasFailure()) return;
  const int64_t passes = state_.num_epochs();
  EXPECT_EQ(state_.position().pass_id(), passes);
  EXPECT_EQ(last_version_, passes);
  // Versions that went by between two looks are not checked.
  EXPECT_GE(static_cast<int64_t>(versions_.size()) * 2, passes);
  EXPECT_TRUE(generation() == 1 || options_.may_rewind) << generation();
}

double ChaosRun::Mrr() {
  const ProgramResult pulled = RunWeft(
      {"checkpoint", "pull", cluster_->processes().lock_server(), "--output", File("model")});
  EXPECT_EQ(pulled.exit_code, 0) << pulled.err;
  const ProgramResult eval =
      RunProgram({WeftPath(), "eval", "run.json", "--edges", "edges", "--set",
                  "checkpoint_path=" + File("model"), "--json", File("eval.json")},
                 world_.InFolder());
  EXPECT_EQ(eval.exit_code, 0) << eval.err;
  if (eval.exit_code != 0) return 0;
  return world_.Json(options_.name + "/eval.json")["raw"]["mrr"].get<double>();
}

int ChaosRun::kills() const {
  int kills = 0;
  for (const auto& [what, count] : done_) {
    if (absl::StartsWith(what, "kill")) kills += count;
  }
  return kills;
}

std::string ChaosRun::Summary() const {
  std::vector<std::string> done;
  for (const auto& [what, count] : done_) done.push_back(absl::StrCat(what, ": ", count));
  return absl::StrCat("store=", options_.store, " seed=", options_.seed, " kills=", kills(), " (",
                      absl::StrJoin(done, ", "), ") passes=", state_.position().pass_id(),
                      " edges=", EdgesDone(), " versions_checked=", versions_.size(),
                      " edges_checked=", edges_checked_, " generation=", generation(),
                      " seconds=", absl::ToInt64Seconds(absl::Now() - begun_));
}

}  // namespace weft::testing
