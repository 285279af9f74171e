#include "graph/checkpoint/zip_archive.h"

#include <zip.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

// libzip's view of a source or a sink. Its pointer must stay where it is.
struct Stream {
  const RandomAccessSource* source = nullptr;
  RandomAccessSink* sink = nullptr;  // may stay null while writing
  int64_t position = 0;
  int64_t written = 0;  // the end of what was written
  absl::Status status;  // the first failure of source or sink
};

zip_int64_t Fail(Stream* stream, absl::Status status) {
  if (stream->status.ok()) stream->status = std::move(status);
  return -1;
}

zip_int64_t SeekTo(Stream* stream, int64_t size, void* data, zip_uint64_t length) {
  zip_error_t error;
  zip_error_init(&error);
  const zip_int64_t to =
      zip_source_seek_compute_offset(static_cast<zip_uint64_t>(stream->position),
                                     static_cast<zip_uint64_t>(size), data, length, &error);
  zip_error_fini(&error);
  if (to < 0) return -1;
  stream->position = to;
  return 0;
}

zip_int64_t Stat(int64_t size, void* data) {
  auto* stat = static_cast<zip_stat_t*>(data);
  zip_stat_init(stat);
  stat->valid = ZIP_STAT_SIZE;
  stat->size = static_cast<zip_uint64_t>(size);
  return sizeof(zip_stat_t);
}

zip_int64_t Error(void* data) {
  auto* codes = static_cast<int*>(data);
  codes[0] = ZIP_ER_INTERNAL;  // the status says more
  codes[1] = 0;
  return 2 * sizeof(int);
}

zip_int64_t ReadCommand(void* user, void* data, zip_uint64_t length, zip_source_cmd_t command) {
  auto* stream = static_cast<Stream*>(user);
  const int64_t size = stream->source->size();
  switch (command) {
    case ZIP_SOURCE_SUPPORTS:
      return ZIP_SOURCE_SUPPORTS_SEEKABLE;
    case ZIP_SOURCE_OPEN:
      stream->position = 0;
      return 0;
    case ZIP_SOURCE_READ: {
      const int64_t n = std::min(static_cast<int64_t>(length), size - stream->position);
      absl::Status status = stream->source->Read(
          stream->position, std::span(static_cast<char*>(data), static_cast<size_t>(n)));
      if (!status.ok()) return Fail(stream, std::move(status));
      stream->position += n;
      return n;
    }
    case ZIP_SOURCE_SEEK:
      return SeekTo(stream, size, data, length);
    case ZIP_SOURCE_TELL:
      return stream->position;
    case ZIP_SOURCE_STAT:
      return Stat(size, data);
    case ZIP_SOURCE_ERROR:
      return Error(data);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
      return 0;
    default:
      return -1;
  }
}

// A new archive: nothing to read, everything to write.
zip_int64_t WriteCommand(void* user, void* data, zip_uint64_t length, zip_source_cmd_t command) {
  auto* stream = static_cast<Stream*>(user);
  switch (command) {
    case ZIP_SOURCE_SUPPORTS:
      return ZIP_SOURCE_SUPPORTS_WRITABLE;
    case ZIP_SOURCE_BEGIN_WRITE:
      stream->position = 0;
      return 0;
    case ZIP_SOURCE_WRITE: {
      const std::string_view bytes(static_cast<const char*>(data), length);
      if (stream->sink != nullptr) {
        absl::Status status = stream->sink->Write(stream->position, bytes);
        if (!status.ok()) return Fail(stream, std::move(status));
      }
      stream->position += static_cast<int64_t>(length);
      stream->written = std::max(stream->written, stream->position);
      return static_cast<zip_int64_t>(length);
    }
    case ZIP_SOURCE_SEEK_WRITE:
      return SeekTo(stream, stream->written, data, length);
    case ZIP_SOURCE_TELL_WRITE:
      return stream->position;
    case ZIP_SOURCE_STAT:
      return Stat(0, data);
    case ZIP_SOURCE_ERROR:
      return Error(data);
    case ZIP_SOURCE_READ:
      return 0;
    case ZIP_SOURCE_OPEN:
    case ZIP_SOURCE_SEEK:
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_COMMIT_WRITE:
    case ZIP_SOURCE_ROLLBACK_WRITE:
    case ZIP_SOURCE_REMOVE:
    case ZIP_SOURCE_FREE:
      return 0;
    default:
      return -1;
  }
}

// Opens an archive over `stream`; nullptr on failure, with `error` set.
zip_t* OpenOver(Stream* stream, zip_source_callback callback, int flags, zip_error_t* error) {
  zip_source_t* source = zip_source_function_create(callback, stream, error);
  if (source == nullptr) return nullptr;
  zip_t* archive = zip_open_from_source(source, flags, error);
  if (archive == nullptr) zip_source_free(source);
  return archive;
}

absl::Status AddMember(zip_t* archive, const ZipMember& member) {
  zip_source_t* contents =
      zip_source_buffer(archive, member.contents.data(), member.contents.size(), /*freep=*/0);
  if (contents == nullptr) return absl::InternalError(zip_strerror(archive));
  const zip_int64_t index = zip_file_add(archive, member.name.c_str(), contents, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(contents);
    return absl::InternalError(zip_strerror(archive));
  }
  const auto i = static_cast<zip_uint64_t>(index);
  const zip_uint16_t first_of_january_1980 = (1 << 5) | 1;
  if (zip_set_file_compression(archive, i, ZIP_CM_STORE, 0) != 0 ||
      zip_file_set_dostime(archive, i, 0, first_of_january_1980, 0) != 0) {
    return absl::InternalError(zip_strerror(archive));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> WriteZip(std::span<const ZipMember> members, RandomAccessSink* sink) {
  WEFT_CHECK(!members.empty());  // libzip writes no file for an empty archive
  Stream stream;
  stream.sink = sink;
  zip_error_t error;
  zip_error_init(&error);
  zip_t* archive = OpenOver(&stream, WriteCommand, ZIP_CREATE | ZIP_TRUNCATE, &error);
  const std::string opening = archive == nullptr ? zip_error_strerror(&error) : "";
  zip_error_fini(&error);
  if (archive == nullptr) return absl::InternalError(absl::StrCat("zip archive: ", opening));
  absl::Status status;
  for (const ZipMember& member : members) {
    status = AddMember(archive, member);
    if (!status.ok()) break;
  }
  if (status.ok() && zip_close(archive) == 0) return stream.written;
  if (status.ok()) status = absl::InternalError(zip_strerror(archive));
  zip_discard(archive);
  return stream.status.ok() ? Annotate(status, "zip archive") : stream.status;
}

struct ZipReader::Impl {
  Stream stream;
  zip_t* archive = nullptr;

  ~Impl() {
    if (archive != nullptr) zip_discard(archive);
  }
  absl::Status Damaged(absl::string_view what, absl::string_view why) const {
    if (!stream.status.ok()) return stream.status;
    return absl::DataLossError(absl::StrCat(what, ": ", why));
  }
};

ZipReader::ZipReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ZipReader::~ZipReader() = default;
ZipReader::ZipReader(ZipReader&&) noexcept = default;
ZipReader& ZipReader::operator=(ZipReader&&) noexcept = default;

absl::StatusOr<ZipReader> ZipReader::Open(const RandomAccessSource* source) {
  auto impl = std::make_unique<Impl>();
  impl->stream.source = source;
  zip_error_t error;
  zip_error_init(&error);
  impl->archive = OpenOver(&impl->stream, ReadCommand, ZIP_RDONLY | ZIP_CHECKCONS, &error);
  const std::string why = impl->archive == nullptr ? zip_error_strerror(&error) : "";
  zip_error_fini(&error);
  if (impl->archive == nullptr) return impl->Damaged("not a whole zip archive", why);
  return ZipReader(std::move(impl));
}

std::vector<std::string> ZipReader::Names() const {
  std::vector<std::string> names;
  const zip_int64_t count = zip_get_num_entries(impl_->archive, 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* name = zip_get_name(impl_->archive, static_cast<zip_uint64_t>(i), 0);
    if (name != nullptr) names.emplace_back(name);
  }
  return names;
}

absl::StatusOr<int64_t> ZipReader::Size(const std::string& name) const {
  zip_stat_t stat;
  if (zip_stat(impl_->archive, name.c_str(), 0, &stat) != 0) {
    return impl_->Damaged(name, zip_strerror(impl_->archive));
  }
  constexpr zip_uint64_t kNeeded =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if ((stat.valid & kNeeded) != kNeeded || stat.comp_method != ZIP_CM_STORE ||
      stat.encryption_method != ZIP_EM_NONE || stat.size != stat.comp_size) {
    return impl_->Damaged(name, "is not stored as it is");
  }
  if (stat.size > static_cast<zip_uint64_t>(impl_->stream.source->size())) {
    return impl_->Damaged(name, "is larger than its archive");
  }
  return static_cast<int64_t>(stat.size);
}

absl::Status ZipReader::Read(const std::string& name, std::span<char> out) const {
  WEFT_RETURN_IF_ERROR(Size(name).status());
  zip_file_t* file = zip_fopen(impl_->archive, name.c_str(), 0);
  if (file == nullptr) return impl_->Damaged(name, zip_strerror(impl_->archive));
  absl::Status status;
  while (!out.empty()) {
    const zip_int64_t n = zip_fread(file, out.data(), out.size());
    if (n <= 0) {
      status = impl_->Damaged(name, n == 0 ? "ends too early" : zip_file_strerror(file));
      break;
    }
    out = out.subspan(static_cast<size_t>(n));
  }
  // The checksum is compared when the end is read.
  char beyond = 0;
  if (status.ok() && zip_fread(file, &beyond, 1) < 0) {
    status = impl_->Damaged(name, zip_file_strerror(file));
  }
  zip_fclose(file);
  return status;
}

}  // namespace weft
