// What an import leaves in `entity_path`, in PBG's format:
//   entity_count_{type}_{part}.txt    one decimal number
//   entity_names_{type}_{part}.json   a JSON array of names, in offset order
//   dynamic_rel_count.txt             one decimal number (dynamic relations only)
//   dynamic_rel_names.json            a JSON array of names
//
// Written files are durable and appear whole (aside, fsync, rename).
// Errors: NotFound when a file is missing, DataLoss when it cannot be understood; messages name the
// file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weft {

std::string EntityCountPath(const std::string& entity_path, const std::string& type, int partition);
std::string EntityNamesPath(const std::string& entity_path, const std::string& type, int partition);
std::string RelationNamesPath(const std::string& entity_path);

absl::Status WriteEntityCount(const std::string& entity_path, const std::string& type,
                              int partition, int64_t count);
absl::StatusOr<int64_t> ReadEntityCount(const std::string& entity_path, const std::string& type,
                                        int partition);

absl::Status WriteEntityNames(const std::string& entity_path, const std::string& type,
                              int partition, absl::Span<const std::string> names);
absl::StatusOr<std::vector<std::string>> ReadEntityNames(const std::string& entity_path,
                                                         const std::string& type, int partition);

absl::Status WriteRelationCount(const std::string& entity_path, int64_t count);
absl::StatusOr<int64_t> ReadRelationCount(const std::string& entity_path);
absl::Status WriteRelationNames(const std::string& entity_path,
                                absl::Span<const std::string> names);
absl::StatusOr<std::vector<std::string>> ReadRelationNames(const std::string& entity_path);

// Writes a names file name by name, in constant memory. Not thread-safe. The file is complete and
// durable after Finish; a writer destroyed before leaves no file.
class NamesWriter {
 public:
  static absl::StatusOr<std::unique_ptr<NamesWriter>> Create(const std::string& path);
  virtual ~NamesWriter() = default;
  // Errors: InvalidArgument when `name` is not valid UTF-8.
  virtual absl::Status Add(std::string_view name) = 0;
  virtual absl::Status Finish() = 0;
};

}  // namespace weft
