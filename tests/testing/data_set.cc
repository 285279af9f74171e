#include "tests/testing/data_set.h"

#include <unistd.h>
#include <zstd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "services/common/mutex.h"
#include "services/common/status_macros.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

// A folder that is removed, with what is in it, when the process ends normally.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (fs::temp_directory_path() / "weft_data_XXXXXX").string();
    if (mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

absl::Status Damaged(const std::string& archive, absl::string_view why) {
  return absl::DataLossError(absl::StrCat(archive, ": cannot be unpacked: ", why));
}

absl::Status Decompress(const std::string& archive, FILE* in, FILE* out) {
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  std::vector<char> compressed(ZSTD_DStreamInSize());
  std::vector<char> plain(ZSTD_DStreamOutSize());
  size_t left = 0;
  while (const size_t n = std::fread(compressed.data(), 1, compressed.size(), in)) {
    ZSTD_inBuffer input{compressed.data(), n, 0};
    while (input.pos < input.size) {
      ZSTD_outBuffer output{plain.data(), plain.size(), 0};
      left = ZSTD_decompressStream(context.get(), &output, &input);
      if (ZSTD_isError(left)) return Damaged(archive, ZSTD_getErrorName(left));
      if (std::fwrite(plain.data(), 1, output.pos, out) != output.pos) {
        return Damaged(archive, "tar does not take its contents");
      }
    }
  }
  if (left != 0) return Damaged(archive, "it ends early");
  return absl::OkStatus();
}

absl::Status Unpack(const std::string& archive, const std::string& folder) {
  std::unique_ptr<FILE, decltype(&std::fclose)> in(std::fopen(archive.c_str(), "rb"), &std::fclose);
  if (in == nullptr) return Damaged(archive, "cannot be opened");
  FILE* tar = popen(absl::StrCat("tar -xf - -C '", folder, "'").c_str(), "w");
  if (tar == nullptr) return Damaged(archive, "cannot start tar");
  absl::Status status = Decompress(archive, in.get(), tar);
  const int exit_status = pclose(tar);
  if (status.ok() && exit_status != 0) status = Damaged(archive, "tar failed");
  return status;
}

}  // namespace

absl::StatusOr<std::string> FindDataSet(const std::string& name) {
  const char* data_dir = std::getenv("WEFT_DATA_DIR");
  if (data_dir == nullptr || *data_dir == '\0') {
    return absl::NotFoundError(absl::StrCat("data set ", name,
                                            " is wanted: set WEFT_DATA_DIR to the folder that "
                                            "holds ",
                                            name, "/ or ", name, ".tar.zst"));
  }
  const fs::path folder = fs::path(data_dir) / name;
  if (fs::is_directory(folder)) return folder.string();
  const fs::path archive = fs::path(data_dir) / absl::StrCat(name, ".tar.zst");
  if (!fs::exists(archive)) {
    return absl::NotFoundError(absl::StrCat("data set ", name, ": neither ", folder.string(),
                                            "/ nor ", archive.string(),
                                            " exists (WEFT_DATA_DIR is ", data_dir, ")"));
  }
  static Mutex mu;
  static std::map<std::string, std::unique_ptr<TemporaryFolder>> unpacked;
  MutexLock lock(&mu);
  std::unique_ptr<TemporaryFolder>& temporary = unpacked[archive.string()];
  if (temporary == nullptr) {
    auto made = std::make_unique<TemporaryFolder>();
    if (made->path().empty()) return absl::InternalError("cannot make a temporary folder");
    WEFT_RETURN_IF_ERROR(Unpack(archive.string(), made->path()));
    if (!fs::is_directory(fs::path(made->path()) / name)) {
      return Damaged(archive.string(), absl::StrCat("it has no folder ", name));
    }
    temporary = std::move(made);
  }
  return (fs::path(temporary->path()) / name).string();
}

}  // namespace weft::testing
