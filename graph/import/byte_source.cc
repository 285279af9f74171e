#include "graph/import/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr size_t kRawBlockBytes = size_t{1} << 18;

// The file as it lies on the disk.
class RawFile {
 public:
  static absl::StatusOr<RawFile> Open(const std::string& input) {
    int fd = STDIN_FILENO;
    if (!IsStandardInput(input)) {
      fd = open(input.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", input));
    }
    RawFile file(fd, InputName(input), !IsStandardInput(input));
    struct stat info;
    if (fstat(fd, &info) != 0) {
      return ErrnoStatus(errno, absl::StrCat("cannot look at ", file.name()));
    }
    if (S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.name(), " is a folder; give the edge file itself"));
    }
    if (S_ISREG(info.st_mode)) {
      file.total_bytes_ = info.st_size;
      posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    return file;
  }

  RawFile(RawFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        name_(std::move(other.name_)),
        owned_(other.owned_),
        state_(std::exchange(other.state_, nullptr)),
        bytes_(other.bytes_),
        total_bytes_(other.total_bytes_) {}
  RawFile& operator=(RawFile&&) = delete;
  ~RawFile() {
    if (fd_ >= 0 && owned_) close(fd_);
    XXH3_freeState(state_);
  }

  // 0 only at the end.
  absl::StatusOr<size_t> Read(char* out, size_t capacity) {
    while (true) {
      const ssize_t n = read(fd_, out, capacity);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, absl::StrCat("cannot read ", name_));
      XXH3_64bits_update(state_, out, static_cast<size_t>(n));
      bytes_ += n;
      return static_cast<size_t>(n);
    }
  }

  const std::string& name() const { return name_; }
  InputDigest digest() const { return {bytes_, XXH3_64bits_digest(state_)}; }
  int64_t total_bytes() const { return total_bytes_; }

 private:
  RawFile(int fd, std::string name, bool owned)
      : fd_(fd), name_(std::move(name)), owned_(owned), state_(XXH3_createState()) {
    XXH3_64bits_reset(state_);
  }

  int fd_;
  std::string name_;
  bool owned_;
  XXH3_state_t* state_;
  int64_t bytes_ = 0;
  int64_t total_bytes_ = 0;
};

// A raw file whose first bytes have been looked at.
struct OpenedFile {
  RawFile raw;
  std::vector<char> head;  // read already
};

class PlainSource : public ByteSource {
 public:
  explicit PlainSource(OpenedFile file) : file_(std::move(file)) {}

  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    if (head_used_ < file_.head.size()) {
      const size_t n = std::min(capacity, file_.head.size() - head_used_);
      std::memcpy(out, file_.head.data() + head_used_, n);
      head_used_ += n;
      return n;
    }
    return file_.raw.Read(out, capacity);
  }
  InputDigest digest() const override { return file_.raw.digest(); }
  int64_t total_bytes() const override { return file_.raw.total_bytes(); }

 private:
  OpenedFile file_;
  size_t head_used_ = 0;
};

// What the two compressed sources share: a window of compressed bytes.
class CompressedSource : public ByteSource {
 public:
  explicit CompressedSource(OpenedFile file) : raw_(std::move(file.raw)) {
    window_ = std::move(file.head);
    end_ = window_.size();
    window_.resize(std::max(end_, kRawBlockBytes));
  }
  InputDigest digest() const override { return raw_.digest(); }
  int64_t total_bytes() const override { return raw_.total_bytes(); }

 protected:
  // Makes begin_ < end_ unless the file ends.
  absl::Status Refill() {
    if (begin_ < end_) return absl::OkStatus();
    begin_ = 0;
    WEFT_ASSIGN_OR_RETURN(end_, raw_.Read(window_.data(), window_.size()));
    return absl::OkStatus();
  }
  absl::Status Damaged(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(raw_.name(), ": ", what));
  }

  RawFile raw_;
  std::vector<char> window_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

class GzipSource : public CompressedSource {
 public:
  explicit GzipSource(OpenedFile file) : CompressedSource(std::move(file)) {
    // 32: gzip or zlib, by the header.
    initialized_ = inflateInit2(&stream_, 15 + 32) == Z_OK;
  }
  ~GzipSource() override {
    if (initialized_) inflateEnd(&stream_);
  }

  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    if (!initialized_) return absl::ResourceExhaustedError("zlib: out of memory");
    while (true) {
      WEFT_RETURN_IF_ERROR(Refill());
      if (between_members_) {
        // Some writers pad the last member with zeros.
        while (begin_ < end_ && window_[begin_] == '\0') ++begin_;
        if (begin_ == end_ && end_ == 0) return size_t{0};
        if (begin_ == end_) continue;
        if (inflateReset(&stream_) != Z_OK) return Damaged("damaged gzip data");
        between_members_ = false;
      }
      if (begin_ == end_) return Damaged("the gzip data ends too early; is the file truncated?");
      stream_.next_in = reinterpret_cast<Bytef*>(window_.data() + begin_);
      stream_.avail_in = static_cast<uInt>(end_ - begin_);
      stream_.next_out = reinterpret_cast<Bytef*>(out);
      stream_.avail_out = static_cast<uInt>(std::min<size_t>(capacity, size_t{1} << 30));
      const uInt wanted = stream_.avail_out;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      begin_ = end_ - stream_.avail_in;
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        return Damaged(absl::StrCat("damaged gzip data (",
                                    stream_.msg != nullptr ? stream_.msg : "no reason given", ")"));
      }
      between_members_ = result == Z_STREAM_END;
      if (stream_.avail_out != wanted) return size_t{wanted - stream_.avail_out};
    }
  }

 private:
  z_stream stream_ = {};
  bool initialized_ = false;
  bool between_members_ = false;
};

class ZstdSource : public CompressedSource {
 public:
  explicit ZstdSource(OpenedFile file)
      : CompressedSource(std::move(file)), stream_(ZSTD_createDStream()) {}
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }

  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    if (stream_ == nullptr) return absl::ResourceExhaustedError("zstd: out of memory");
    ZSTD_outBuffer output = {out, capacity, 0};
    while (output.pos == 0) {
      WEFT_RETURN_IF_ERROR(Refill());
      if (begin_ == end_ && frame_done_) return size_t{0};
      // At the end of the file the decoder may still hold output of its own.
      ZSTD_inBuffer input = {window_.data() + begin_, end_ - begin_, 0};
      const size_t left = ZSTD_decompressStream(stream_, &output, &input);
      if (ZSTD_isError(left)) {
        return Damaged(absl::StrCat("damaged zstd data (", ZSTD_getErrorName(left), ")"));
      }
      if (begin_ == end_ && output.pos == 0) {
        return Damaged("the zstd data ends too early; is the file truncated?");
      }
      begin_ += input.pos;
      frame_done_ = left == 0;
    }
    return output.pos;
  }

 private:
  ZSTD_DStream* stream_;
  bool frame_done_ = true;
};

struct Magic {
  std::string_view bytes;
  absl::string_view advice;
};
constexpr Magic kForeignFormats[] = {
    {std::string_view("\xFD"
                      "7zXZ\0",
                      6),
     "is xz data; pipe it in: xz -dc FILE | weft import ... -"},
    {"BZh91AY&SY", "is bzip2 data; pipe it in: bzip2 -dc FILE | weft import ... -"},
    {"PK\x03\x04", "is a zip archive; unpack it first"},
    {"PAR1\x15",
     "is a Parquet file, which is not read; pipe it in as CSV: python3 -c 'import pandas, sys; "
     "pandas.read_parquet(sys.argv[1]).to_csv(sys.stdout, index=False)' FILE | weft import ... - "
     "--format csv --skip-header"},
    {"\x89HDF\r\n", "is an HDF5 file; edges are read from TSV or CSV"},
};

bool StartsWith(const std::vector<char>& head, std::string_view magic) {
  return std::string_view(head.data(), head.size()).starts_with(magic);
}

}  // namespace

bool IsStandardInput(const std::string& input) { return input == kStandardInput; }

std::string InputName(const std::string& input) {
  return IsStandardInput(input) ? "standard input" : input;
}

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::Open(const std::string& input) {
  WEFT_ASSIGN_OR_RETURN(RawFile raw, RawFile::Open(input));
  std::vector<char> head(kRawBlockBytes);
  size_t size = 0;
  // A pipe may give a few bytes at a time; ten tell every format.
  while (size < 10) {
    WEFT_ASSIGN_OR_RETURN(const size_t n, raw.Read(head.data() + size, head.size() - size));
    if (n == 0) break;
    size += n;
  }
  head.resize(size);
  for (const Magic& format : kForeignFormats) {
    if (StartsWith(head, format.bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(raw.name(), " ", format.advice));
    }
  }
  const bool gzip = StartsWith(head, "\x1F\x8B");
  const bool zstd = StartsWith(head, "\x28\xB5\x2F\xFD");
  if (!gzip && input.ends_with(".gz")) {
    return absl::DataLossError(absl::StrCat(input, " is named .gz but holds no gzip data"));
  }
  // A zstd file may begin with a skippable frame, which has another magic.
  const bool named_zstd = input.ends_with(".zst");
  if (named_zstd && size == 0) {
    return absl::DataLossError(absl::StrCat(input, " is named .zst but is empty"));
  }
  OpenedFile file{std::move(raw), std::move(head)};
  std::unique_ptr<ByteSource> source;
  if (gzip) {
    source = std::make_unique<GzipSource>(std::move(file));
  } else if (zstd || named_zstd) {
    source = std::make_unique<ZstdSource>(std::move(file));
  } else {
    source = std::make_unique<PlainSource>(std::move(file));
  }
  return source;
}

absl::StatusOr<bool> IsRereadable(const std::string& input) {
  if (IsStandardInput(input)) return false;
  struct stat info;
  if (stat(input.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot open ", input));
  }
  return S_ISREG(info.st_mode);
}

absl::StatusOr<InputDigest> DigestInput(const std::string& input) {
  WEFT_ASSIGN_OR_RETURN(RawFile raw, RawFile::Open(input));
  std::vector<char> block(kRawBlockBytes);
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const size_t n, raw.Read(block.data(), block.size()));
    if (n == 0) return raw.digest();
  }
}

}  // namespace weft
