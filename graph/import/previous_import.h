// What lies in the folders of an import before it begins, and whether it is the same import.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/dataset_manifest.h"
#include "graph/import/publication.h"

namespace weft {

struct PreviousImport {
  // Looks into every folder of `publication`.
  // Errors: those of the file system. A manifest that cannot be read is a difference, not an error.
  static absl::StatusOr<PreviousImport> Find(const Publication& publication);

  // Whether there are any files that a new import would replace.
  bool exists() const;

  // Why the files are not what these inputs and settings would give, one reason a line; empty when
  // they are. `inputs`: name, bytes and hash are looked at.
  std::vector<std::string> Differences(
      absl::Span<const DatasetManifest::Input> inputs,
      absl::Span<const std::pair<std::string, std::string>> settings) const;

  struct Folder {
    std::string path;
    std::vector<std::string> files;  // their names
    absl::StatusOr<DatasetManifest> manifest;
  };
  std::vector<Folder> folders;  // as Publication::folders()
};

}  // namespace weft
