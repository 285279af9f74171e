// Hdf5Output is the file that HDF5 writes into, through a driver that remembers a failed write
// instead of telling it.
//
// Told of a full disk, HDF5 1.10 cannot close the file any more (its metadata stays dirty) and
// crashes at the end of the process. So the driver claims success, and whoever writes asks error().
// Private to graph/hdf5_*.cc. Not thread-safe.
#pragma once

#include <hdf5.h>

#include <string>

#include "absl/status/status.h"
#include "graph/hdf5_handle.h"

namespace weft::hdf5 {

class Hdf5Output {
 public:
  Hdf5Output() = default;
  ~Hdf5Output();
  Hdf5Output(const Hdf5Output&) = delete;
  Hdf5Output& operator=(const Hdf5Output&) = delete;

  // Creates or empties the file. Errors: as services/common/file_util.h.
  absl::Status Open(const std::string& path);

  // Properties that make H5Fcreate write into this file, which must outlive the HDF5 file.
  Handle FileAccess();

  // What a write has failed with, 0 when none has.
  int error() const { return error_; }

  // fsync. To be called when HDF5 has closed the file.
  absl::Status Sync();

 private:
  std::string path_;
  int fd_ = -1;
  int error_ = 0;
};

}  // namespace weft::hdf5
