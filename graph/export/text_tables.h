// Tables of vectors as text: tab-separated values, and word2vec's format.
//
// Numbers have as many digits as tell them from every other float, so that reading them gives the
// same floats. Files appear when they are whole. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/output_file.h"

namespace weft {

// KEY <tab> ... <tab> VALUE <tab> VALUE ..., one row a line; as PBG's export_to_tsv.
class TsvWriter {
 public:
  static absl::StatusOr<std::unique_ptr<TsvWriter>> Create(const std::string& path);

  // Errors: InvalidArgument when a key holds a tab or a line end, which the format cannot say.
  absl::Status Add(std::span<const std::string_view> keys, std::span<const float> values);
  absl::Status Finish() { return file_->Finish(); }

 private:
  explicit TsvWriter(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<OutputFile> file_;
};

// COUNT DIMENSION, then NAME VALUE VALUE ..., separated by single spaces. A name is one word there:
// white space in it becomes `_`.
class Word2VecWriter {
 public:
  static absl::StatusOr<std::unique_ptr<Word2VecWriter>> Create(const std::string& path,
                                                                int64_t count, int64_t dimension);

  // Errors: InvalidArgument when the name is empty, or the word is that of a name before it.
  absl::Status Add(std::string_view name, std::span<const float> values);
  absl::Status Finish();

  int64_t changed_names() const { return changed_names_; }

 private:
  Word2VecWriter(std::unique_ptr<OutputFile> file, int64_t count)
      : file_(std::move(file)), expected_(count) {}

  const std::unique_ptr<OutputFile> file_;
  const int64_t expected_;
  int64_t added_ = 0;
  int64_t changed_names_ = 0;
  absl::flat_hash_set<uint64_t> hashes_;  // of the words so far
};

}  // namespace weft
