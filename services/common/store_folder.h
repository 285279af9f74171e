// StoreFolder is the identity of a store: the small file that says whose data a folder holds.
//
//   FOLDER/store.id := "weft store 1\n" "store " 16 hex digits "\n" ["run " 32 hex digits "\n"]
//
// The store id is made with the folder and never changes; the run id is written at the first
// registration and never changes; the incarnation is that of this process and not on the disk.
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/cluster_types.h"
#include "services/common/mutex.h"

namespace weft {

class StoreFolder {
 public:
  // Makes the folder when it is missing. The caller keeps other processes away.
  // Errors: DataLoss (the file is damaged), FailedPrecondition (a newer format), those of files.
  static absl::StatusOr<std::unique_ptr<StoreFolder>> Open(const std::string& folder);

  // An identity that is kept elsewhere than in a file: what a simulated disk remembers.
  static std::unique_ptr<StoreFolder> InMemory(StoreId store_id, Incarnation incarnation,
                                               std::string run_id);

  StoreId store_id() const { return store_id_; }
  Incarnation incarnation() const { return incarnation_; }
  std::string run_id() const ABSL_LOCKS_EXCLUDED(mu_);  // empty: not bound yet

  // Binds the folder to a run, for ever. Durable when it returns; repeats are fine.
  // Errors: InvalidArgument (no run id), FailedPrecondition (bound to another run; names both).
  absl::Status BindRun(const std::string& run_id) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  StoreFolder(std::string path, StoreId store_id, Incarnation incarnation, std::string run_id);

  absl::Status Write(const std::string& run_id) const;

  const std::string path_;  // empty: in memory
  const StoreId store_id_;
  const Incarnation incarnation_;

  mutable Mutex mu_;
  std::string run_id_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
