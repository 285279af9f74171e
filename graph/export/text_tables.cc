#include "graph/export/text_tables.h"

#include <xxhash.h>

#include <charconv>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

void AppendFloat(float value, std::string* out) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  out->append(text, static_cast<size_t>(end.ptr - text));
}

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::StatusOr<std::unique_ptr<TsvWriter>> TsvWriter::Create(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, OutputFile::Create(path));
  return std::unique_ptr<TsvWriter>(new TsvWriter(std::move(file)));
}

absl::Status TsvWriter::Add(std::span<const std::string_view> keys, std::span<const float> values) {
  std::string& out = file_->buffer();
  bool first = true;
  for (const std::string_view key : keys) {
    if (key.find_first_of("\t\n\r") != std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_->path(), ": the name \"", Absl(key),
                       "\" holds a tab or a line end, which TSV cannot say; use another format"));
    }
    if (!std::exchange(first, false)) out.push_back('\t');
    out.append(key);
  }
  for (const float value : values) {
    out.push_back('\t');
    AppendFloat(value, &out);
  }
  out.push_back('\n');
  return file_->Flush();
}

absl::StatusOr<std::unique_ptr<Word2VecWriter>> Word2VecWriter::Create(const std::string& path,
                                                                       int64_t count,
                                                                       int64_t dimension) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, OutputFile::Create(path));
  absl::StrAppend(&file->buffer(), count, " ", dimension, "\n");
  return std::unique_ptr<Word2VecWriter>(new Word2VecWriter(std::move(file), count));
}

absl::Status Word2VecWriter::Add(std::string_view name, std::span<const float> values) {
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_->path(), ": an empty name is no word; use another format"));
  }
  std::string word(name);
  bool changed = false;
  for (char& c : word) {
    if (!absl::ascii_isspace(static_cast<unsigned char>(c))) continue;
    c = '_';
    changed = true;
  }
  if (!hashes_.insert(XXH3_64bits(word.data(), word.size())).second) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_->path(), ": the name \"", Absl(name), "\" becomes the word ", word,
                     ", which another name is already; use another format"));
  }
  changed_names_ += changed ? 1 : 0;
  ++added_;
  std::string& out = file_->buffer();
  out.append(word);
  for (const float value : values) {
    out.push_back(' ');
    AppendFloat(value, &out);
  }
  out.push_back('\n');
  return file_->Flush();
}

absl::Status Word2VecWriter::Finish() {
  WEFT_CHECK(added_ == expected_);
  return file_->Finish();
}

}  // namespace weft
