// Zip archives of members that are stored as they are: the container of a torch.save file.
//
// Nothing is copied in memory: members are written from and read into the caller's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/checkpoint/random_access.h"

namespace weft {

struct ZipMember {
  std::string name;
  std::span<const char> contents;
};

// Writes an archive of `members` in this order and returns its size in bytes. `sink` nullptr: only
// the size is wanted. The bytes are a function of the members alone (no times in them).
absl::StatusOr<int64_t> WriteZip(std::span<const ZipMember> members, RandomAccessSink* sink);

// Thread-safety: none.
class ZipReader {
 public:
  // `source` must outlive the reader.
  // Errors: DataLoss when it is not a whole zip archive; those of `source`.
  static absl::StatusOr<ZipReader> Open(const RandomAccessSource* source);
  ~ZipReader();
  ZipReader(ZipReader&&) noexcept;
  ZipReader& operator=(ZipReader&&) noexcept;

  std::vector<std::string> Names() const;
  // Errors: DataLoss when there is no such member, or it is compressed or encrypted.
  absl::StatusOr<int64_t> Size(const std::string& name) const;
  // Reads the first out.size() bytes of a member. Read as a whole, its checksum is verified.
  // Errors: DataLoss.
  absl::Status Read(const std::string& name, std::span<char> out) const;

 private:
  struct Impl;
  explicit ZipReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
