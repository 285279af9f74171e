// A small, checked front of HDF5's C API: what Weft and PBG put into their files, and no more.
//
// Every error names the file, the data set or attribute, and the cause. Files are trusted as to
// origin (libhdf5 itself does not stand hostile ones); damaged and truncated ones give DataLoss.
// Thread-safety: one object a thread; the library serializes calls by a global lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

class Hdf5Reader {
 public:
  // Errors: NotFound, DataLoss (not an HDF5 file, truncated).
  static absl::StatusOr<Hdf5Reader> Open(const std::string& path);
  ~Hdf5Reader();
  Hdf5Reader(Hdf5Reader&&) noexcept;
  Hdf5Reader& operator=(Hdf5Reader&&) noexcept;

  bool HasDataset(const std::string& name) const;
  // Full names ("model/relations/0/...") of all data sets below group `prefix`, in creation order
  // where the file tracks it, else by name.
  absl::StatusOr<std::vector<std::string>> ListDatasets(const std::string& prefix) const;
  absl::StatusOr<std::vector<int64_t>> Shape(const std::string& dataset) const;

  // Elements [begin, begin + out.size()) of a one-dimensional data set, converted.
  absl::Status Read(const std::string& dataset, int64_t begin, std::span<int64_t> out) const;
  absl::Status Read(const std::string& dataset, int64_t begin, std::span<float> out) const;
  // Rows [begin, ...) of an n-dimensional float data set whose rows have `out.size()` floats in
  // all.
  absl::Status ReadRows(const std::string& dataset, int64_t begin, int64_t count,
                        std::span<float> out) const;
  absl::StatusOr<std::string> ReadOpaque(const std::string& dataset) const;

  // `object`: a data set or group, "/" for the file. NotFound when there is no such attribute.
  absl::StatusOr<int64_t> IntAttribute(const std::string& object, const std::string& name) const;
  absl::StatusOr<std::string> StringAttribute(const std::string& object,
                                              const std::string& name) const;

 private:
  struct Impl;
  explicit Hdf5Reader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Writes PATH.tmp.PID; Finish closes, fsyncs and renames it to PATH. Destroyed before Finish, it
// removes its file. Groups on the way to a data set are made as needed, with creation order
// tracked.
class Hdf5Writer {
 public:
  static absl::StatusOr<Hdf5Writer> Create(const std::string& path);
  ~Hdf5Writer();
  Hdf5Writer(Hdf5Writer&&) noexcept;
  Hdf5Writer& operator=(Hdf5Writer&&) noexcept;

  // A contiguous float32 data set.
  absl::Status Write(const std::string& dataset, std::span<const int64_t> shape,
                     std::span<const float> values);
  // An extendible one-dimensional data set (chunks of 64 Ki elements); append to it by Append.
  absl::Status CreateAppendable(const std::string& dataset, bool is_float);
  absl::Status Append(const std::string& dataset, std::span<const int64_t> values);
  absl::Status Append(const std::string& dataset, std::span<const float> values);
  // Opaque bytes, as h5py's V1.
  absl::Status WriteOpaque(const std::string& dataset, std::string_view bytes);

  absl::Status IntAttribute(const std::string& object, const std::string& name, int64_t value);
  // A variable-length UTF-8 string (fixed-length ones end at 64 KiB).
  absl::Status StringAttribute(const std::string& object, const std::string& name,
                               const std::string& value);

  absl::Status Finish();

 private:
  struct Impl;
  explicit Hdf5Writer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
