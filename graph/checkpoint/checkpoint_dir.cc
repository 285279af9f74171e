#include "graph/checkpoint/checkpoint_dir.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "graph/hdf5_file.h"
#include "services/common/check.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr char kVersionFile[] = "checkpoint_version.txt";
constexpr char kEpochPrefix[] = "epoch_";

// Nothing when `text` is no version: a decimal number and at most one line end.
bool ParseVersion(absl::string_view text, int64_t* version) {
  absl::ConsumeSuffix(&text, "\n");
  if (text.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(text[0]))) return false;
  return absl::SimpleAtoi(text, version);
}

// The version in "NAME.v12.h5"; false for other names.
bool VersionOfFile(absl::string_view name, int64_t* version) {
  if (!absl::ConsumeSuffix(&name, ".h5")) return false;
  if (!absl::StartsWith(name, "model.v") && !absl::StartsWith(name, "embeddings_")) return false;
  const size_t at = name.rfind(".v");
  return at != absl::string_view::npos && ParseVersion(name.substr(at + 2), version);
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

// Makes `link` point to `target`, whatever it was before.
absl::Status ReplaceLink(const std::string& target, const std::string& link) {
  std::error_code error;
  if (fs::read_symlink(link, error) == target && !error) return absl::OkStatus();
  const std::string aside = absl::StrCat(link, ".tmp.", getpid());
  unlink(aside.c_str());
  if (symlink(target.c_str(), aside.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot create link ", aside));
  }
  return RenameDurably(aside, link);
}

}  // namespace

std::string RunFolderOf(const std::string& checkpoint, const std::string& checkpoint_path) {
  std::error_code error;
  fs::path folder = fs::canonical(checkpoint, error);
  if (error || fs::path(checkpoint_path).is_absolute()) return "";
  if (absl::StartsWith(folder.filename().string(), kEpochPrefix)) folder = folder.parent_path();
  const fs::path relative = fs::path(checkpoint_path).lexically_normal();
  std::vector<fs::path> parts;
  for (const fs::path& part : relative) {
    if (!part.empty() && part != ".") parts.push_back(part);
  }
  for (size_t i = parts.size(); i-- > 0;) {
    if (folder.filename() != parts[i]) return "";
    folder = folder.parent_path();
  }
  return folder.string();
}

CheckpointDir::CheckpointDir(std::string path, std::vector<EntityType> entity_types)
    : path_(std::move(path)), entity_types_(std::move(entity_types)) {}

std::string CheckpointDir::EmbeddingsPath(const std::string& type, int partition,
                                          int64_t version) const {
  return absl::StrCat(path_, "/embeddings_", type, "_", partition, ".v", version, ".h5");
}

std::string CheckpointDir::ModelPath(int64_t version) const {
  return absl::StrCat(path_, "/model.v", version, ".h5");
}

std::string CheckpointDir::StatsPath() const { return absl::StrCat(path_, "/training_stats.json"); }

std::string CheckpointDir::ConfigPath() const { return absl::StrCat(path_, "/config.json"); }

std::string CheckpointDir::WeftConfigPath() const {
  return absl::StrCat(path_, "/weft_config.json");
}

std::vector<std::string> CheckpointDir::FilesOf(int64_t version) const {
  std::vector<std::string> files = {absl::StrCat("model.v", version, ".h5")};
  for (const EntityType& type : entity_types_) {
    for (int p = 0; p < type.num_partitions; ++p) {
      files.push_back(absl::StrCat("embeddings_", type.name, "_", p, ".v", version, ".h5"));
    }
  }
  return files;
}

std::vector<std::string> CheckpointDir::MissingFilesOf(int64_t version) const {
  std::vector<std::string> missing;
  for (std::string& file : FilesOf(version)) {
    std::error_code error;
    const auto size = fs::file_size(absl::StrCat(path_, "/", file), error);
    if (error || size == 0) missing.push_back(std::move(file));
  }
  return missing;
}

std::vector<int64_t> CheckpointDir::PresentVersions() const {
  std::set<int64_t, std::greater<>> versions;
  for (const std::string& name : NamesIn(path_)) {
    int64_t version = 0;
    if (VersionOfFile(name, &version)) versions.insert(version);
  }
  return {versions.begin(), versions.end()};
}

absl::StatusOr<int64_t> CheckpointDir::NewestWholeVersion(const std::string& why,
                                                          std::string* warning) const {
  const std::vector<int64_t> versions = PresentVersions();
  for (const int64_t version : versions) {
    if (!MissingFilesOf(version).empty()) continue;
    bool readable = true;
    for (const std::string& file : FilesOf(version)) {
      readable = readable && Hdf5Reader::Open(absl::StrCat(path_, "/", file)).ok();
    }
    if (!readable) continue;
    if (warning != nullptr) {
      *warning = absl::StrCat(path_, "/", kVersionFile, ": ", why,
                              "; taking the newest whole version, ", version);
    }
    return version;
  }
  if (versions.empty()) return 0;
  return absl::DataLossError(absl::StrCat(
      path_, "/", kVersionFile, ": ", why, ", and none of the versions that have files here (",
      absl::StrJoin(versions, ", "),
      ") is whole; restore the missing files, or remove the folder to begin anew"));
}

absl::StatusOr<int64_t> CheckpointDir::CommittedVersion(std::string* warning) const {
  if (warning != nullptr) warning->clear();
  const absl::StatusOr<std::string> text = ReadFile(absl::StrCat(path_, "/", kVersionFile));
  if (absl::IsNotFound(text.status())) {
    // A run that died before its first commit leaves files, too, but no whole version.
    const absl::StatusOr<int64_t> version = NewestWholeVersion("is missing", warning);
    return absl::IsDataLoss(version.status()) ? 0 : version;
  }
  WEFT_RETURN_IF_ERROR(text.status());
  int64_t version = 0;
  if (!ParseVersion(*text, &version)) {
    return NewestWholeVersion(text->empty() ? "is empty" : "holds no version", warning);
  }
  if (version == 0) return 0;
  const std::vector<std::string> missing = MissingFilesOf(version);
  if (!missing.empty()) {
    return absl::DataLossError(absl::StrCat(
        path_, ": version ", version, " is the committed one, but ", missing.size(),
        " of its files are missing or empty (", missing[0], missing.size() > 1 ? ", ..." : "",
        "); restore them, or set ", kVersionFile, " to a version that is whole"));
  }
  return version;
}

absl::StatusOr<CheckpointDir::PinnedVersion> CheckpointDir::PinCommittedVersion(
    std::string* warning) const {
  constexpr int kAttempts = 20;
  for (int attempt = 1;; ++attempt) {
    const absl::StatusOr<int64_t> version = CommittedVersion(warning);
    if (version.ok()) {
      if (*version == 0) return PinnedVersion();
      std::optional<VersionPin> pin = VersionPin::Share(ModelPath(*version));
      if (pin.has_value() && MissingFilesOf(*version).empty()) {
        return PinnedVersion{*version, std::move(pin)};
      }
    }
    // A training may have replaced it between two of these steps.
    if (attempt < kAttempts) continue;
    WEFT_RETURN_IF_ERROR(version.status());
    return absl::DataLossError(
        absl::StrCat(path_, ": version ", *version, " was removed while it was opened"));
  }
}

absl::Status CheckpointDir::Commit(int64_t version) {
  WEFT_CHECK(version >= 1);
  const std::vector<std::string> missing = MissingFilesOf(version);
  if (!missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("cannot commit version ", version, " of ",
                                                      path_, ": ", missing[0],
                                                      " is missing or empty"));
  }
  WEFT_RETURN_IF_ERROR(SyncDirectory(path_));
  return WriteFileAtomically(absl::StrCat(path_, "/", kVersionFile), absl::StrCat(version, "\n"));
}

bool CheckpointDir::IsPreserved(int64_t version) const {
  for (const std::string& name : NamesIn(path_)) {
    if (!absl::StartsWith(name, kEpochPrefix)) continue;
    const absl::StatusOr<std::string> text =
        ReadFile(absl::StrCat(path_, "/", name, "/", kVersionFile));
    int64_t preserved = 0;
    if (text.ok() && ParseVersion(*text, &preserved) && preserved == version) return true;
  }
  return false;
}

absl::Status CheckpointDir::Remove(int64_t version) {
  const absl::StatusOr<std::string> text = ReadFile(absl::StrCat(path_, "/", kVersionFile));
  int64_t committed = 0;
  if (text.ok() && ParseVersion(*text, &committed) && committed == version) {
    return absl::OkStatus();
  }
  if (IsPreserved(version)) return absl::OkStatus();
  bool pinned = false;
  const std::optional<VersionPin> own = VersionPin::Own(ModelPath(version), &pinned);
  if (pinned) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": version ", version, " is being read"));
  }
  for (const std::string& file : FilesOf(version)) {
    const std::string path = absl::StrCat(path_, "/", file);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("cannot remove ", path));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointDir::Preserve(int64_t version, int64_t epoch,
                                     const std::string& config_json) {
  const std::string folder = absl::StrCat(path_, "/", kEpochPrefix, epoch);
  WEFT_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::vector<std::string> missing = MissingFilesOf(version);
  if (!missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("cannot preserve version ", version, " of ",
                                                      path_, ": ", missing[0],
                                                      " is missing or empty"));
  }
  // The version file goes last: with it, the folder is whole.
  for (const std::string& file : FilesOf(version)) {
    WEFT_RETURN_IF_ERROR(ReplaceLink(absl::StrCat("../", file), absl::StrCat(folder, "/", file)));
  }
  WEFT_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder, "/config.json"), config_json));
  WEFT_RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(folder, "/", kVersionFile), absl::StrCat(version, "\n")));
  // Links to what another version had here.
  for (const std::string& name : NamesIn(folder)) {
    int64_t other = 0;
    if (VersionOfFile(name, &other) && other != version) {
      unlink(absl::StrCat(folder, "/", name).c_str());
    }
  }
  return SyncDirectory(path_);
}

}  // namespace weft
