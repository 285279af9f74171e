#include "graph/hdf5_handle.h"

#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"

namespace weft::hdf5 {
namespace {

struct Cause {
  std::string innermost;
  int system_error = 0;
};

herr_t Collect(unsigned depth, const H5E_error2_t* error, void* data) {
  auto* cause = static_cast<Cause*>(data);
  const absl::string_view text = error->desc == nullptr ? "" : error->desc;
  if (depth == 0) cause->innermost = std::string(text);
  // "file write failed: time = ..., filename = '...', errno = 28, error message = '...', ..."
  constexpr absl::string_view kErrno = "errno = ";
  const size_t at = text.find(kErrno);
  if (cause->system_error == 0 && at != absl::string_view::npos) {
    const absl::string_view number = text.substr(at + kErrno.size());
    int value = 0;
    if (absl::SimpleAtoi(number.substr(0, number.find_first_not_of("0123456789")), &value)) {
      cause->system_error = value;
    }
  }
  return 0;
}

}  // namespace

void Quiet() {
  thread_local const herr_t done = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  (void)done;
}

absl::Status LastError(absl::StatusCode code, absl::string_view what) {
  Cause cause;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, Collect, &cause);
  H5Eclear2(H5E_DEFAULT);
  if (cause.system_error != 0) return ErrnoStatus(cause.system_error, std::string(what));
  if (cause.innermost.empty()) return absl::Status(code, what);
  return absl::Status(code, absl::StrCat(what, ": ", cause.innermost));
}

Handle FileAccess() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access.get(), /*use_file_locking=*/false, /*ignore_when_disabled=*/true);
  // Whatever else of the file is still open closes with it.
  H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
  return access;
}

}  // namespace weft::hdf5
