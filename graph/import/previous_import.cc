#include "graph/import/previous_import.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

void CompareInputs(const std::vector<DatasetManifest::Input>& was,
                   absl::Span<const DatasetManifest::Input> now,
                   std::vector<std::string>* differences) {
  if (was.size() != now.size()) {
    differences->push_back(
        absl::StrCat("there are now ", now.size(), " inputs, were ", was.size()));
    return;
  }
  for (size_t i = 0; i < now.size(); ++i) {
    if (was[i].bytes == now[i].bytes && was[i].hash == now[i].hash) continue;
    differences->push_back(absl::StrCat("input ", now[i].name, " has changed (now ", now[i].bytes,
                                        " bytes, was ", was[i].bytes, ")"));
  }
}

void CompareFiles(const PreviousImport::Folder& folder, const DatasetManifest& manifest,
                  std::vector<std::string>* differences) {
  for (const DatasetManifest::File& file : manifest.files) {
    const std::string path = absl::StrCat(folder.path, "/", file.name);
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error) {
      differences->push_back(absl::StrCat(path, " is missing"));
    } else if (static_cast<int64_t>(size) != file.bytes) {
      differences->push_back(
          absl::StrCat(path, " has ", size, " bytes, the import wrote ", file.bytes));
    }
  }
}

}  // namespace

absl::StatusOr<PreviousImport> PreviousImport::Find(const Publication& publication) {
  PreviousImport previous;
  for (size_t i = 0; i < publication.folders().size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(std::vector<std::string> files, publication.ExistingFiles(i));
    const std::string& path = publication.folders()[i];
    previous.folders.push_back({path, std::move(files), ReadManifest(path)});
  }
  return previous;
}

bool PreviousImport::exists() const {
  return std::any_of(folders.begin(), folders.end(),
                     [](const Folder& folder) { return !folder.files.empty(); });
}

std::vector<std::string> PreviousImport::Differences(
    absl::Span<const DatasetManifest::Input> inputs,
    absl::Span<const std::pair<std::string, std::string>> settings) const {
  std::vector<std::string> differences;
  for (const Folder& folder : folders) {
    if (folder.manifest.ok()) continue;
    if (!absl::IsNotFound(folder.manifest.status())) {
      differences.emplace_back(folder.manifest.status().message());
    } else if (folder.files.empty()) {
      differences.push_back(absl::StrCat(folder.path, " holds nothing of it"));
    } else {
      differences.push_back(absl::StrCat(folder.path, " has files of an import without a ",
                                         DatasetManifest::kFileName, " (", folder.files[0],
                                         folder.files.size() > 1 ? ", ..." : "", ")"));
    }
  }
  if (!differences.empty()) return differences;
  // The folders of one import say the same; the first difference is told once.
  const uint64_t import_id = ImportId(inputs, settings);
  for (const Folder& folder : folders) {
    if (folder.manifest->import_id == import_id) continue;
    CompareInputs(folder.manifest->inputs, inputs, &differences);
    for (std::string& change : DescribeChanges(folder.manifest->settings, settings)) {
      differences.push_back(std::move(change));
    }
    if (differences.empty()) {
      differences.push_back(absl::StrCat(folder.path, " belongs to another import"));
    }
    return differences;
  }
  for (const Folder& folder : folders) CompareFiles(folder, *folder.manifest, &differences);
  return differences;
}

}  // namespace weft
