// RunPlan is what is to be trained, and how: constant while a coordinator lives.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "services/common/clock.h"
#include "services/common/cluster_types.h"
#include "services/common/run_config.h"
#include "services/lock_server/bucket_scheduler.h"
#include "services/lock_server/early_stopping.h"

namespace weft {

struct RunState;

// What a run of many processes needs beside. Zero durations: never.
struct ClusterOptions {
  using Duration = SteadyTime::duration;

  Incarnation incarnation = 1;  // of this lock server
  Duration lease = std::chrono::seconds(30);
  Duration stall_timeout = std::chrono::minutes(10);
  int max_bucket_attempts = 10;  // 0: no limit
  int partition_replicas = 1;
  Duration store_lost_after = std::chrono::minutes(15);
  Duration checkpoint_interval = std::chrono::minutes(20);  // of manifests within a pass
  // Of keep lists to a server, at least; one with memory has more when there is much to drop.
  Duration sweep_interval = std::chrono::seconds(1);
  int num_param_servers = 0;
  // The bytes of a state, for the manifests that partition servers keep; unset: they keep none.
  std::function<std::string(const RunState&)> encode_state;
  // Whether a bucket waits until one of its partitions has been trained; a trainer does so for
  // `init_tree_wait` at most.
  bool init_tree = true;
  Duration init_tree_wait = std::chrono::seconds(30);
  // Whether grants that begin, and those that end with a release, are told, too.
  bool verbose = false;
  // What of the configuration an import must have been made with: "entities.user.num_partitions=4".
  std::vector<std::string> import_schema;
  // The checkpoint that the run is to begin with, which somebody has to push; empty: none.
  std::string init_path;
};

struct RunPlan {
  int num_lhs = 1;  // partitions on each side
  int num_rhs = 1;
  std::vector<BucketScheduler::PartitionedType> partitioned_types;
  BucketOrder bucket_order = BucketOrder::kInsideOut;
  int resident_partitions = 2;  // of the one trainer; above 2, BETA's order
  double commit_seconds = 60;
  // How fast edges are trained, for commit_seconds. A figure of the configuration makes grants a
  // function of it alone, and runs repeatable; unset: as measured in this process.
  std::optional<double> edges_per_second;
  int num_epochs = 1;
  // By edge path: edges per bucket, [lhs partition, rhs partition], of all edge chunks. Empty: the
  // run waits for its edges.
  std::vector<std::vector<int64_t>> bucket_edges;
  EarlyStoppingOptions early_stopping;
  // The version at the end of every so many epochs stays (in a cluster; one process keeps files).
  std::optional<int> preservation_interval;
  // Unset: a run in one process. Sessions and grants end with it, checkpoints are its files.
  std::optional<ClusterOptions> cluster;
};

}  // namespace weft
