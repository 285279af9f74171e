#include "graph/import/publication.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/dataset_manifest.h"
#include "graph/import/bad_line_log.h"
#include "graph/import/byte_source.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// "a/b/" and "./a/b" are one folder.
std::string Normalized(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) return path;
  return (whole.has_filename() ? whole : whole.parent_path()).string();
}

absl::Status FromError(const std::error_code& error, std::string_view what) {
  return ErrnoStatus(error.value(), what);
}

bool ConsumeNumber(std::string_view* text) {
  const size_t digits = std::min(text->find_first_not_of("0123456789"), text->size());
  text->remove_prefix(digits);
  return digits > 0;
}

bool Consume(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

bool IsBucketFile(std::string_view name) {
  return Consume("edges_", &name) && ConsumeNumber(&name) && Consume("_", &name) &&
         ConsumeNumber(&name) && name == ".h5";
}

bool IsEntityFile(std::string_view name) {
  return (name.starts_with("entity_count_") && name.ends_with(".txt")) ||
         (name.starts_with("entity_names_") && name.ends_with(".json")) ||
         name == "dynamic_rel_count.txt" || name == "dynamic_rel_names.json";
}

absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->is_directory(error)) continue;
    names.push_back(at->path().filename().string());
  }
  if (error) return FromError(error, absl::StrCat("cannot list ", folder));
  std::sort(names.begin(), names.end());
  return names;
}

std::string Staging(const std::string& folder) {
  return absl::StrCat(folder, "/", kImportStagingFolder);
}

std::string CommitPath(const std::string& entity_path) {
  return absl::StrCat(Staging(entity_path), "/", kImportCommitFile);
}

// Everything written to the file system that holds `folder`: once for thousands of files.
absl::Status SyncFileSystem(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", folder));
  const int result = syncfs(fd);
  const int error = errno;
  close(fd);
  if (result == 0) return absl::OkStatus();
  return ErrnoStatus(error, absl::StrCat("cannot sync the file system of ", folder));
}

bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

// The strings of an array of file names; false when it is something else.
bool ReadNames(const Json& object, const char* key, std::vector<std::string>* names) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return false;
  for (const Json& name : *found) {
    if (!name.is_string() || !IsPlainName(name.get<std::string>())) return false;
    names->push_back(name.get<std::string>());
  }
  return true;
}

}  // namespace

// What the commit file says about one folder.
struct Publication::Folder {
  std::string path;
  std::vector<std::string> files;   // to move; the manifest comes last
  std::vector<std::string> remove;  // of an earlier import, and not among the new ones
};

absl::StatusOr<std::unique_ptr<Publication>> Publication::Begin(
    const std::string& entity_path, const std::vector<std::string>& edge_paths, StepHook on_step) {
  std::vector<std::string> folders = {entity_path};
  std::vector<std::string> normalized = {Normalized(entity_path)};
  std::vector<size_t> edge_folder;
  for (const std::string& edge_path : edge_paths) {
    const auto known = std::find(normalized.begin(), normalized.end(), Normalized(edge_path));
    const auto index = static_cast<size_t>(known - normalized.begin());
    if (std::find(edge_folder.begin(), edge_folder.end(), index) != edge_folder.end()) {
      return absl::InvalidArgumentError(absl::StrCat("edge_paths: ", edge_path, " is there twice"));
    }
    if (known == normalized.end()) {
      folders.push_back(edge_path);
      normalized.push_back(Normalized(edge_path));
    }
    edge_folder.push_back(index);
  }
  std::unique_ptr<Publication> publication(
      new Publication(std::move(folders), std::move(edge_folder), std::move(on_step)));
  WEFT_RETURN_IF_ERROR(publication->MakeAndLock());
  return publication;
}

Publication::Publication(std::vector<std::string> folders, std::vector<size_t> edge_folder,
                         StepHook on_step)
    : folders_(std::move(folders)),
      edge_folder_(std::move(edge_folder)),
      on_step_(std::move(on_step)) {}

Publication::~Publication() {
  std::error_code ignored;
  if (!committed_ && locks_.size() == folders_.size()) {
    for (const std::string& folder : folders_) fs::remove_all(Staging(folder), ignored);
  }
  if (!committed_) {
    for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) {
      fs::remove(*folder, ignored);  // only when it is empty
    }
  }
  for (const int lock : locks_) close(lock);
}

std::string Publication::StagingFolder(size_t folder) const { return Staging(folders_[folder]); }

void Publication::Step(std::string_view name) const {
  if (on_step_) on_step_(name);
}

absl::Status Publication::MakeAndLock() {
  std::error_code error;
  for (const std::string& folder : folders_) {
    std::vector<std::string> missing;
    for (fs::path at = fs::absolute(folder, error).lexically_normal();
         !at.empty() && !fs::exists(at, error); at = at.parent_path()) {
      if (at.has_filename()) missing.push_back(at.string());
    }
    made_.insert(made_.end(), missing.rbegin(), missing.rend());
    WEFT_RETURN_IF_ERROR(MakeDirectories(folder));
    const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", folder));
    // Some network file systems have no locks: then there is no protection, but no harm either.
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(fd);
      return absl::FailedPreconditionError(
          absl::StrCat(folder, ": another import is at work here; wait for it or end it"));
    }
    locks_.push_back(fd);
  }
  if (fs::exists(CommitPath(folders_[0]), error)) {
    committed_ = true;  // by an earlier process: whatever happens, its files are not to be removed
    WEFT_RETURN_IF_ERROR(Finish());
    committed_ = false;
  }
  for (const std::string& folder : folders_) {
    fs::remove_all(Staging(folder), error);
    if (error) return FromError(error, absl::StrCat("cannot remove ", Staging(folder)));
    WEFT_RETURN_IF_ERROR(MakeDirectories(Staging(folder)));
  }
  Step("staging folders made");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Publication::ExistingFiles(size_t folder) const {
  WEFT_ASSIGN_OR_RETURN(std::vector<std::string> names, ListFiles(folders_[folder]));
  const bool has_edges =
      std::find(edge_folder_.begin(), edge_folder_.end(), folder) != edge_folder_.end();
  std::erase_if(names, [&](const std::string& name) {
    const bool ours = (folder == 0 && IsEntityFile(name)) || (has_edges && IsBucketFile(name)) ||
                      (has_edges && name == kRejectedLinesFile) ||
                      name == DatasetManifest::kFileName;
    return !ours;
  });
  return names;
}

absl::StatusOr<std::vector<DatasetManifest::File>> Publication::DigestStagedFiles(
    size_t folder) const {
  std::vector<DatasetManifest::File> files;
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFiles(StagingFolder(folder)));
  for (const std::string& name : names) {
    WEFT_ASSIGN_OR_RETURN(const InputDigest digest,
                          DigestInput(absl::StrCat(StagingFolder(folder), "/", name)));
    files.push_back({name, digest.bytes, digest.hash});
  }
  return files;
}

absl::Status Publication::Commit() {
  Json root = Json::object();
  root["folders"] = Json::array();
  for (size_t i = 0; i < folders_.size(); ++i) {
    WEFT_RETURN_IF_ERROR(SyncFileSystem(Staging(folders_[i])));
    WEFT_ASSIGN_OR_RETURN(std::vector<std::string> staged, ListFiles(Staging(folders_[i])));
    WEFT_ASSIGN_OR_RETURN(std::vector<std::string> remove, ExistingFiles(i));
    std::erase_if(remove, [&](const std::string& name) {
      return std::binary_search(staged.begin(), staged.end(), name);
    });
    // Relative, so that a data set may be moved as a whole before it is finished.
    std::error_code error;
    const fs::path relative =
        fs::proximate(Normalized(folders_[i]), Normalized(folders_[0]), error);
    Json folder = Json::object();
    folder["path"] = error ? Normalized(folders_[i]) : relative.string();
    folder["files"] = staged;
    folder["remove"] = remove;
    root["folders"].push_back(std::move(folder));
  }
  Step("files staged");
  // On failure the file may or may not be there; it must not be, or the next import would publish.
  absl::Status written = WriteFileAtomically(
      CommitPath(folders_[0]), root.dump(1, ' ', false, Json::error_handler_t::replace));
  if (!written.ok()) {
    unlink(CommitPath(folders_[0]).c_str());
    return written;
  }
  committed_ = true;
  Step("committed");
  return Finish();
}

absl::Status Publication::Finish() {
  const std::string path = CommitPath(folders_[0]);
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto damaged = [&] {
    return absl::DataLossError(absl::StrCat(path, ": damaged; remove the folder ",
                                            Staging(folders_[0]), " and import with --force"));
  };
  if (!root.is_object() || !root.contains("folders") || !root["folders"].is_array()) {
    return damaged();
  }
  std::vector<std::string> done;
  for (const Json& entry : root["folders"]) {
    Folder folder;
    if (!entry.is_object() || !entry.contains("path") || !entry["path"].is_string() ||
        !ReadNames(entry, "files", &folder.files) || !ReadNames(entry, "remove", &folder.remove)) {
      return damaged();
    }
    folder.path =
        (fs::path(folders_[0]) / entry["path"].get<std::string>()).lexically_normal().string();
    WEFT_RETURN_IF_ERROR(MoveFiles(folder));
    done.push_back(Staging(folder.path));
  }
  if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("cannot remove ", path));
  WEFT_RETURN_IF_ERROR(SyncDirectory(Staging(folders_[0])));
  Step("published");
  std::error_code ignored;
  for (const std::string& staging : done) fs::remove_all(staging, ignored);
  return absl::OkStatus();
}

// May be repeated: what has been moved is no longer in the staging folder.
absl::Status Publication::MoveFiles(const Folder& folder) {
  const auto move = [&](const std::string& name) -> absl::Status {
    const std::string from = absl::StrCat(Staging(folder.path), "/", name);
    const std::string to = absl::StrCat(folder.path, "/", name);
    if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    std::error_code error;
    if (errno == ENOENT && fs::exists(to, error)) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("cannot rename ", from, " to ", to));
  };
  for (const std::string& name : folder.remove) {
    const std::string path = absl::StrCat(folder.path, "/", name);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("cannot remove ", path));
    }
  }
  Step("old files removed");
  for (const std::string& name : folder.files) {
    if (name == DatasetManifest::kFileName) continue;
    WEFT_RETURN_IF_ERROR(move(name));
    Step("file moved");
  }
  WEFT_RETURN_IF_ERROR(SyncDirectory(folder.path));
  WEFT_RETURN_IF_ERROR(move(DatasetManifest::kFileName));
  return SyncDirectory(folder.path);
}

}  // namespace weft
