// Publication brings the files of an import into their folders all together or not at all, through
// crashes of the process and of the machine.
//
// Every folder has a staging folder inside it (inside, because the folder may be a mount of its
// own, and rename does not leave a file system). While an import works, only staging folders
// change. Commit writes a commit file, which decides: before it is there, nothing has happened;
// once it is there, the moves that it lists are carried out, by this process or, after a crash, by
// the next import. Training refuses a folder with a commit file (CheckDataset).
//
//   ENTITY_PATH/.weft-import/commit.json   {"folders": [{"path", "files": [...], "remove": [...]}]}
//   FOLDER/.weft-import/NAME               moved to FOLDER/NAME
//
// A second import into one of the folders is refused while the first lives.
// Errors: FailedPrecondition (another import is at work), DataLoss (a damaged commit file),
// ResourceExhausted, PermissionDenied, Internal from the file system.
// Thread-safety: none.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dataset_manifest.h"

namespace weft {

class Publication {
 public:
  // Called with the name of a step when it is done; tests end the process there.
  using StepHook = std::function<void(std::string_view step)>;

  // Makes the folders that are missing, locks them, finishes what an earlier import had committed,
  // and removes what earlier ones left. The entity path may also be one of the edge paths.
  static absl::StatusOr<std::unique_ptr<Publication>> Begin(
      const std::string& entity_path, const std::vector<std::string>& edge_paths, StepHook on_step);

  // Without Commit before: removes all that was staged and the folders that were made.
  ~Publication();

  // The folders without repetition: the entity path first, then the edge paths in their order.
  const std::vector<std::string>& folders() const { return folders_; }
  // Where in folders() an edge path is.
  size_t folder_of_edge_path(size_t i) const { return edge_folder_[i]; }

  std::string StagingFolder(size_t folder) const;

  // Files of an import (Weft's or PBG's) that lie in a folder, by name, in order.
  absl::StatusOr<std::vector<std::string>> ExistingFiles(size_t folder) const;

  // Name, size and hash of every file in a staging folder, by name.
  absl::StatusOr<std::vector<DatasetManifest::File>> DigestStagedFiles(size_t folder) const;

  // Makes the staged files durable and publishes them in place of ExistingFiles.
  absl::Status Commit();

 private:
  struct Folder;

  Publication(std::vector<std::string> folders, std::vector<size_t> edge_folder, StepHook on_step);

  absl::Status MakeAndLock();
  absl::Status Finish();
  absl::Status MoveFiles(const Folder& folder);
  void Step(std::string_view name) const;

  const std::vector<std::string> folders_;
  const std::vector<size_t> edge_folder_;  // of every edge path, in folders_
  const StepHook on_step_;
  std::vector<int> locks_;
  std::vector<std::string> made_;  // folders, parents first
  bool committed_ = false;
};

}  // namespace weft
