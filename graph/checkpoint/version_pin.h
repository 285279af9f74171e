// VersionPin keeps a version of a checkpoint from being removed while somebody reads it, though its
// training goes on in another process: readers share a lock on the version's model file, and who
// removes the version needs it alone. The lock goes with its holder, however that ends.
//
// A file system without locks pins nothing, and hinders nobody. Movable; not thread-safe.
#pragma once

#include <optional>
#include <string>

namespace weft {

class VersionPin {
 public:
  VersionPin(VersionPin&& other) noexcept;
  VersionPin& operator=(VersionPin&& other) noexcept;
  VersionPin(const VersionPin&) = delete;
  VersionPin& operator=(const VersionPin&) = delete;
  ~VersionPin();

  // For a reader. Nothing when the file is not there, or no longer.
  static std::optional<VersionPin> Share(const std::string& model_path);
  // For who removes the version: *pinned becomes true when somebody reads it. Nothing when there is
  // no file to lock, or no lock.
  static std::optional<VersionPin> Own(const std::string& model_path, bool* pinned);

 private:
  explicit VersionPin(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace weft
