// What the two halves of hdf5_file.h share: owned HDF5 identifiers and the cause of an error.
// Private to graph/hdf5_*.cc.
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft::hdf5 {

// An HDF5 identifier that is closed at the end of its life.
class Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  Handle() = default;
  Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  ~Handle() { Close(); }
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), closer_(other.closer_) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      Close();
      id_ = std::exchange(other.id_, H5I_INVALID_HID);
      closer_ = other.closer_;
    }
    return *this;
  }

  bool ok() const { return id_ >= 0; }
  hid_t get() const { return id_; }
  // False when closing failed, which for a file means that buffered data could not be written.
  bool Close() {
    if (!ok()) return true;
    return closer_(std::exchange(id_, H5I_INVALID_HID)) >= 0;
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Closer closer_ = nullptr;
};

// Stops HDF5 from printing its error stack, which is kept per thread: so to be called by every
// function that enters the library.
void Quiet();

// The status of the call that has just failed in this thread: `what` and the innermost cause that
// HDF5 recorded. A system error decides the code (disk full: ResourceExhausted), else `code` does.
absl::Status LastError(absl::StatusCode code, absl::string_view what);

// Properties for opening files: no file locks. Weft publishes by rename, so a file never changes
// under a reader, and locks fail on some network file systems.
Handle FileAccess();

}  // namespace weft::hdf5
