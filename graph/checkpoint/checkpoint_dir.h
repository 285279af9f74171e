// CheckpointDir is a checkpoint folder in PBG's layout:
//   checkpoint_version.txt                 the version readers use, replaced by rename
//   config.json, weft_config.json          PBG's keys only; the effective configuration
//   embeddings_{type}_{part}.v{N}.h5       one a partition
//   model.v{N}.h5                          shared parameters
//   training_stats.json                    one JSON object a line
//   epoch_{N}/                             relative links to a preserved version, and a config.json
//
// A version is written like this: its files (each aside, fsync, rename), then Commit. Whatever is
// interrupted, readers see the version before or the version after.
//
// An empty or unreadable version file is never "version 0": the newest version whose files are all
// there is used, with a warning.
// Thread-safety: not thread-safe; one writer a folder (the caller holds its lock).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/checkpoint/version_pin.h"

namespace weft {

// The folder from which a run's relative paths lead: that of its checkpoint (`epoch_N` of it, too)
// less the configuration's checkpoint_path. Empty when they have nothing to do with each other.
std::string RunFolderOf(const std::string& checkpoint, const std::string& checkpoint_path);

class CheckpointDir {
 public:
  // The entity types and their partition counts say which files make a version whole.
  struct EntityType {
    std::string name;
    int num_partitions = 1;
  };

  CheckpointDir(std::string path, std::vector<EntityType> entity_types);

  const std::string& path() const { return path_; }
  std::string EmbeddingsPath(const std::string& type, int partition, int64_t version) const;
  std::string ModelPath(int64_t version) const;
  std::string StatsPath() const;
  std::string ConfigPath() const;      // config.json
  std::string WeftConfigPath() const;  // weft_config.json

  // The committed version, 0 when nothing was committed. `warning` (may be nullptr) is set when the
  // version file was of no use and the newest whole version is taken, else emptied.
  // Errors: DataLoss when the pointer names a version with missing files, or is damaged and no
  // whole version is there although files of some version are.
  absl::StatusOr<int64_t> CommittedVersion(std::string* warning = nullptr) const;

  // The same for who reads the version while its training may go on: it stays until the pin goes.
  struct PinnedVersion {
    int64_t version = 0;
    std::optional<VersionPin> pin;
  };
  absl::StatusOr<PinnedVersion> PinCommittedVersion(std::string* warning = nullptr) const;

  // Switches readers to `version` >= 1. Errors: FailedPrecondition when one of its files is missing
  // or empty; ResourceExhausted (disk full) and whatever else writing the version file may give.
  absl::Status Commit(int64_t version);

  // Removes the files of `version` that exist. The committed version and preserved ones stay, which
  // is no error. Errors: FailedPrecondition while somebody has it pinned.
  absl::Status Remove(int64_t version);

  // Makes epoch_{epoch}/ with relative links to the files of `version`, idempotently; what another
  // version left there is replaced.
  absl::Status Preserve(int64_t version, int64_t epoch, const std::string& config_json);

 private:
  std::vector<std::string> FilesOf(int64_t version) const;  // names, without the folder
  // Names those that are missing or empty.
  std::vector<std::string> MissingFilesOf(int64_t version) const;
  // Descending: the versions of which some file is there.
  std::vector<int64_t> PresentVersions() const;
  absl::StatusOr<int64_t> NewestWholeVersion(const std::string& why, std::string* warning) const;
  bool IsPreserved(int64_t version) const;

  const std::string path_;
  const std::vector<EntityType> entity_types_;
};

}  // namespace weft
