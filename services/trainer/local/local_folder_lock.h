// LocalFolderLock keeps other processes of this machine (and of those that share its disk) from
// training in the same checkpoint folder: an flock on FOLDER/.weft/lock, which holds the process
// id.
//
// The kernel lets go of it when the process ends, however it ends.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

class LocalFolderLock {
 public:
  // Makes the folder and its .weft when they are missing.
  // Errors: FailedPrecondition when another process has it (the message names its id).
  static absl::StatusOr<std::unique_ptr<LocalFolderLock>> Acquire(const std::string& folder);
  ~LocalFolderLock();

  LocalFolderLock(const LocalFolderLock&) = delete;
  LocalFolderLock& operator=(const LocalFolderLock&) = delete;

  // Leaves nothing of what Acquire made, if nothing else was put there: for runs that are refused.
  void RemoveTraces();

 private:
  LocalFolderLock(std::string folder, int fd, bool made_folder, bool made_state)
      : folder_(std::move(folder)), fd_(fd), made_folder_(made_folder), made_state_(made_state) {}

  const std::string folder_;
  const int fd_;
  const bool made_folder_;
  const bool made_state_;
};

}  // namespace weft
