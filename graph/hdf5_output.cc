#include "graph/hdf5_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"

namespace weft::hdf5 {
namespace {

struct DriverInfo {
  int fd;
  int* error;
};

// HDF5's view of an open file; the base comes first, as its drivers must have it.
struct OpenFile {
  H5FD_t base;
  DriverInfo info;
  haddr_t end_of_allocation;
  haddr_t end_of_file;
};

OpenFile* Cast(H5FD_t* file) { return reinterpret_cast<OpenFile*>(file); }
const OpenFile* Cast(const H5FD_t* file) { return reinterpret_cast<const OpenFile*>(file); }

H5FD_t* OpenCallback(const char*, unsigned, hid_t access, haddr_t) {
  const auto* info = static_cast<const DriverInfo*>(H5Pget_driver_info(access));
  if (info == nullptr) return nullptr;
  return reinterpret_cast<H5FD_t*>(new OpenFile{{}, *info, 0, 0});
}

herr_t CloseCallback(H5FD_t* file) {
  delete Cast(file);
  return 0;
}

int CompareCallback(const H5FD_t* a, const H5FD_t* b) {
  return std::less<>()(a, b) ? -1 : std::less<>()(b, a);
}

herr_t QueryCallback(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t GetEndOfAllocation(const H5FD_t* file, H5FD_mem_t) { return Cast(file)->end_of_allocation; }

herr_t SetEndOfAllocation(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  Cast(file)->end_of_allocation = address;
  return 0;
}

haddr_t GetEndOfFile(const H5FD_t* file, H5FD_mem_t) { return Cast(file)->end_of_file; }

// What was never written, or could not be, reads as zeros.
herr_t ReadCallback(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* buffer) {
  auto* out = static_cast<char*>(buffer);
  while (size > 0) {
    const ssize_t n = pread(Cast(file)->info.fd, out, size, static_cast<off_t>(address));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    out += n;
    address += static_cast<haddr_t>(n);
    size -= static_cast<size_t>(n);
  }
  std::memset(out, 0, size);
  return 0;
}

herr_t WriteCallback(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size,
                     const void* buffer) {
  const DriverInfo& info = Cast(file)->info;
  const auto* from = static_cast<const char*>(buffer);
  Cast(file)->end_of_file = std::max(Cast(file)->end_of_file, address + size);
  while (size > 0 && *info.error == 0) {
    const ssize_t n = pwrite(info.fd, from, size, static_cast<off_t>(address));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      *info.error = errno;
      break;
    }
    from += n;
    address += static_cast<haddr_t>(n);
    size -= static_cast<size_t>(n);
  }
  return 0;
}

herr_t TruncateCallback(H5FD_t* file, hid_t, hbool_t) {
  OpenFile* open = Cast(file);
  if (open->end_of_file == open->end_of_allocation) return 0;
  if (*open->info.error == 0 &&
      ftruncate(open->info.fd, static_cast<off_t>(open->end_of_allocation)) != 0) {
    *open->info.error = errno;
  }
  open->end_of_file = open->end_of_allocation;
  return 0;
}

hid_t RegisterDriver() {
  H5FD_class_t driver{};
  driver.name = "weft_output";
  driver.maxaddr = haddr_t{1} << 62;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(DriverInfo);
  driver.open = OpenCallback;
  driver.close = CloseCallback;
  driver.cmp = CompareCallback;
  driver.query = QueryCallback;
  driver.get_eoa = GetEndOfAllocation;
  driver.set_eoa = SetEndOfAllocation;
  driver.get_eof = GetEndOfFile;
  driver.read = ReadCallback;
  driver.write = WriteCallback;
  driver.truncate = TruncateCallback;
  const H5FD_mem_t free_lists[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;  // as HDF5's own drivers
  std::copy(std::begin(free_lists), std::end(free_lists), driver.fl_map);
  return H5FDregister(&driver);
}

}  // namespace

Hdf5Output::~Hdf5Output() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Hdf5Output::Open(const std::string& path) {
  path_ = path;
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) return ErrnoStatus(errno, absl::StrCat("cannot create ", path));
  return absl::OkStatus();
}

Handle Hdf5Output::FileAccess() {
  static const hid_t driver = RegisterDriver();
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  const DriverInfo info{fd_, &error_};
  H5Pset_driver(access.get(), driver, &info);
  // Whatever else of the file is still open closes with it.
  H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
  return access;
}

absl::Status Hdf5Output::Sync() {
  if (fsync(fd_) != 0) return ErrnoStatus(errno, absl::StrCat("cannot sync ", path_));
  return absl::OkStatus();
}

}  // namespace weft::hdf5
