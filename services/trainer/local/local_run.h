// LocalRun is a whole run on one machine: the logic of lock server, partition server and parameter
// server in this process, over files in the checkpoint folder. The training loop sees its three
// clients, as it would see those of a cluster.
//
//   checkpoint_path/            PBG's files: the committed version, and what it is made of
//     .weft/lock                held while a process trains here
//     .weft/run.log             the run's state (services/lock_server/file_run_store.h)
//     .weft/blobs/              partitions by token (partition_server/partition_file_store.h)
//     .weft/shared.snapshot     what all trainers share, in the middle of a pass
// Without .weft a run continues from the committed version; so a folder may come from PBG.
//
// After a crash at any instant every released bucket is kept, with its statistics. In runs with one
// bucket a pass, that is the pass.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/common/run_config.h"
#include "services/lock_server/run_coordinator.h"
#include "services/param_server/param_client.h"
#include "services/partition_server/partition_client.h"
#include "services/trainer/local/local_data.h"

namespace weft {

class LocalRun {
 public:
  struct Options {
    // What ReadLocalData gave for the configuration; it is read when nobody has yet.
    std::optional<LocalData> data = std::nullopt;
    // Called after each committed version, on the thread that committed it.
    std::function<void(const CompletePass&)> on_commit;
    // Called with the name of each step of making a version; for crash tests.
    std::function<void(absl::string_view step)> on_step;
  };

  // Everything is checked before anything is written.
  // Errors: FailedPrecondition when another process trains here, or when configuration or data do
  // not fit the run that is there (the message has both values); NotFound, DataLoss for files that
  // are missing or damaged. A missing partition is never silently initialised again.
  static absl::StatusOr<std::unique_ptr<LocalRun>> Open(const RunConfig& config, Options options);
  virtual ~LocalRun() = default;

  // The configuration in effect: with the run's seed, which was drawn when it began if none was
  // configured.
  virtual const RunConfig& config() const = 0;
  // What is different from what one may expect; for people.
  virtual const std::vector<std::string>& notes() const = 0;

  virtual LockClient& lock() = 0;
  virtual PartitionClient& partitions() = 0;
  // Join fills parameters and tables; what nothing was stored of gets its initial values, and
  // parameters keep the ones they have.
  virtual ParamClient& params() = 0;

  virtual RunProgress progress() const = 0;
  // "already complete (50/50 epochs)" when there is nothing to train; else empty.
  virtual std::string Completion() const = 0;
};

}  // namespace weft
