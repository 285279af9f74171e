#include "graph/export/npy_writer.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little);

// Magic, version, length of the description, description padded with spaces to a multiple of 64.
std::string Header(std::span<const int64_t> shape) {
  std::string description =
      absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  constexpr size_t kBefore = 10;
  constexpr size_t kAlignment = 64;
  description.resize(
      (kBefore + description.size() + kAlignment) / kAlignment * kAlignment - kBefore, ' ');
  description.back() = '\n';
  WEFT_CHECK(description.size() <= 0xFFFF);
  std::string header("\x93NUMPY\x01\x00", 8);
  header.push_back(static_cast<char>(description.size() & 0xFF));
  header.push_back(static_cast<char>(description.size() >> 8));
  return header + description;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NpyWriter>> NpyWriter::Create(const std::string& path,
                                                             std::span<const int64_t> shape) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, OutputFile::Create(path));
  file->buffer() = Header(shape);
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return std::unique_ptr<NpyWriter>(new NpyWriter(std::move(file), size));
}

absl::Status NpyWriter::Add(std::span<const float> values) {
  missing_ -= static_cast<int64_t>(values.size());
  WEFT_CHECK(missing_ >= 0);
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  if (values.size_bytes() >= OutputFile::kFlushBytes) {
    return file_->Write({bytes, values.size_bytes()});
  }
  file_->buffer().append(bytes, values.size_bytes());
  return file_->Flush();
}

absl::Status NpyWriter::Finish() {
  WEFT_CHECK(missing_ == 0);
  return file_->Finish();
}

}  // namespace weft
