#include "graph/entity_files.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/output_file.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

std::string RelationCountPath(const std::string& entity_path) {
  return absl::StrCat(entity_path, "/dynamic_rel_count.txt");
}

absl::Status WriteCount(const std::string& path, int64_t count) {
  return WriteFileAtomically(path, absl::StrCat(count, "\n"));
}

absl::StatusOr<int64_t> ReadCount(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  int64_t count = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &count) || count < 0) {
    return absl::DataLossError(
        absl::StrCat(path, ": is not a count: \"", text.substr(0, 40), "\""));
  }
  return count;
}

// The length of the UTF-8 sequence at the start of `s` and its code point; 0 when there is none
// (overlong forms, surrogates and values above U+10FFFF included).
int DecodeUtf8(std::string_view s, uint32_t* code_point) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t lead = byte(0);
  int length = 0;
  uint32_t value = 0;
  if (lead < 0x80) {
    *code_point = lead;
    return 1;
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    value = lead & 0x1F;
  } else if ((lead & 0xF0) == 0xE0) {
    length = 3;
    value = lead & 0x0F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    value = lead & 0x07;
  } else {
    return 0;
  }
  if (s.size() < static_cast<size_t>(length)) return 0;
  for (int i = 1; i < length; ++i) {
    const uint8_t next = byte(static_cast<size_t>(i));
    if ((next & 0xC0) != 0x80) return 0;
    value = (value << 6) | (next & 0x3F);
  }
  if (length == 3 && (value < 0x800 || (value >= 0xD800 && value <= 0xDFFF))) return 0;
  if (length == 4 && (value < 0x10000 || value > 0x10FFFF)) return 0;
  *code_point = value;
  return length;
}

// Appends `name` as a JSON string in ASCII: PBG opens these files in the encoding of the locale.
bool AppendJsonString(std::string_view name, std::string* out) {
  out->push_back('"');
  for (size_t i = 0; i < name.size();) {
    const char c = name[i];
    if (c >= 0x20 && c < 0x7F) {
      if (c == '"' || c == '\\') out->push_back('\\');
      out->push_back(c);
      ++i;
      continue;
    }
    uint32_t code_point = 0;
    const int length = DecodeUtf8(name.substr(i), &code_point);
    if (length == 0) return false;
    if (code_point >= 0x10000) {
      const uint32_t offset = code_point - 0x10000;
      absl::StrAppendFormat(out, "\\u%04x\\u%04x", 0xD800 + (offset >> 10),
                            0xDC00 + (offset & 0x3FF));
    } else {
      absl::StrAppendFormat(out, "\\u%04x", code_point);
    }
    i += static_cast<size_t>(length);
  }
  out->push_back('"');
  return true;
}

class FileNamesWriter : public NamesWriter {
 public:
  explicit FileNamesWriter(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}

  absl::Status Add(std::string_view name) override {
    std::string& out = file_->buffer();
    out.append(count_ == 0 ? "[\n    " : ",\n    ");
    if (!AppendJsonString(name, &out)) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_->path(), ": name ", count_, " is not valid UTF-8"));
    }
    ++count_;
    return file_->Flush();
  }

  absl::Status Finish() override {
    file_->buffer().append(count_ == 0 ? "[]" : "\n]");
    return file_->Finish();
  }

 private:
  const std::unique_ptr<OutputFile> file_;
  int64_t count_ = 0;
};

absl::Status WriteNames(const std::string& path, absl::Span<const std::string> names) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<NamesWriter> writer, NamesWriter::Create(path));
  for (const std::string& name : names) WEFT_RETURN_IF_ERROR(writer->Add(name));
  return writer->Finish();
}

// Takes one array of strings and nothing else; building a JSON tree first would need several times
// the memory.
class NamesHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit NamesHandler(std::vector<std::string>* names) : names_(names) {}

  bool start_array(size_t) override { return std::exchange(state_, kInside) == kBefore; }
  bool end_array() override {
    state_ = kAfter;
    return true;
  }
  bool string(string_t& value) override {
    if (state_ != kInside) return false;
    names_->push_back(std::move(value));
    return true;
  }
  bool null() override { return false; }
  bool boolean(bool) override { return false; }
  bool number_integer(number_integer_t) override { return false; }
  bool number_unsigned(number_unsigned_t) override { return false; }
  bool number_float(number_float_t, const string_t&) override { return false; }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return false; }
  bool key(string_t&) override { return false; }
  bool end_object() override { return false; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    error = e.what();
    return false;
  }

  std::string error;

 private:
  enum State { kBefore, kInside, kAfter };
  State state_ = kBefore;
  std::vector<std::string>* const names_;
};

absl::StatusOr<std::vector<std::string>> ReadNames(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<std::string> names;
  NamesHandler handler(&names);
  if (!nlohmann::json::sax_parse(text, &handler)) {
    return absl::DataLossError(absl::StrCat(path, ": is not a JSON array of strings",
                                            handler.error.empty()
                                                ? absl::StrCat(" (at element ", names.size(), ")")
                                                : absl::StrCat(": ", handler.error)));
  }
  return names;
}

}  // namespace

std::string EntityCountPath(const std::string& entity_path, const std::string& type,
                            int partition) {
  return absl::StrCat(entity_path, "/entity_count_", type, "_", partition, ".txt");
}

std::string EntityNamesPath(const std::string& entity_path, const std::string& type,
                            int partition) {
  return absl::StrCat(entity_path, "/entity_names_", type, "_", partition, ".json");
}

std::string RelationNamesPath(const std::string& entity_path) {
  return absl::StrCat(entity_path, "/dynamic_rel_names.json");
}

absl::Status WriteEntityCount(const std::string& entity_path, const std::string& type,
                              int partition, int64_t count) {
  return WriteCount(EntityCountPath(entity_path, type, partition), count);
}

absl::StatusOr<int64_t> ReadEntityCount(const std::string& entity_path, const std::string& type,
                                        int partition) {
  return ReadCount(EntityCountPath(entity_path, type, partition));
}

absl::Status WriteEntityNames(const std::string& entity_path, const std::string& type,
                              int partition, absl::Span<const std::string> names) {
  return WriteNames(EntityNamesPath(entity_path, type, partition), names);
}

absl::StatusOr<std::vector<std::string>> ReadEntityNames(const std::string& entity_path,
                                                         const std::string& type, int partition) {
  return ReadNames(EntityNamesPath(entity_path, type, partition));
}

absl::Status WriteRelationCount(const std::string& entity_path, int64_t count) {
  return WriteCount(RelationCountPath(entity_path), count);
}

absl::StatusOr<int64_t> ReadRelationCount(const std::string& entity_path) {
  return ReadCount(RelationCountPath(entity_path));
}

absl::Status WriteRelationNames(const std::string& entity_path,
                                absl::Span<const std::string> names) {
  return WriteNames(RelationNamesPath(entity_path), names);
}

absl::StatusOr<std::vector<std::string>> ReadRelationNames(const std::string& entity_path) {
  return ReadNames(RelationNamesPath(entity_path));
}

absl::StatusOr<std::unique_ptr<NamesWriter>> NamesWriter::Create(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, OutputFile::Create(path));
  return std::make_unique<FileNamesWriter>(std::move(file));
}

}  // namespace weft
