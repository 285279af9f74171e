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

// Reads without file locks and takes none: several readers, in one process or many, are fine.
class Hdf5Reader {
 public:
  // Errors: NotFound, PermissionDenied, DataLoss (not an HDF5 file, truncated).
  static absl::StatusOr<Hdf5Reader> Open(const std::string& path);
  ~Hdf5Reader();
  Hdf5Reader(Hdf5Reader&&) noexcept;
  Hdf5Reader& operator=(Hdf5Reader&&) noexcept;

  const std::string& path() const;
  int64_t size() const;  // of the file, in bytes

  bool HasDataset(const std::string& name) const;
  // Full names ("model/relations/0/...") of all data sets below group `prefix`, in creation order
  // where a group tracks it, else by name. No such group: empty.
  absl::StatusOr<std::vector<std::string>> ListDatasets(const std::string& prefix) const;
  // The shape of a data set; for opaque bytes {count}. NotFound when there is no such data set.
  absl::StatusOr<std::vector<int64_t>> Shape(const std::string& dataset) const;

  // Elements [begin, begin + out.size()) of a one-dimensional data set.
  // Errors: NotFound; InvalidArgument (not integers, for int64_t; not numbers, for float; not one
  // dimension; too short); DataLoss.
  absl::Status Read(const std::string& dataset, int64_t begin, std::span<int64_t> out) const;
  absl::Status Read(const std::string& dataset, int64_t begin, std::span<float> out) const;
  // Rows [begin, begin + count) of an n-dimensional data set of numbers, straight into `out`, which
  // must be of their size. A scalar is one row of one number. Errors as Read.
  absl::Status ReadRows(const std::string& dataset, int64_t begin, int64_t count,
                        std::span<float> out) const;
  // Bytes [begin, begin + out.size()) of a one-dimensional data set of opaque bytes. Errors as
  // Read.
  absl::Status ReadOpaque(const std::string& dataset, int64_t begin, std::span<char> out) const;
  absl::StatusOr<std::string> ReadOpaque(const std::string& dataset) const;

  // `object`: a data set or group, "/" for the file.
  // Errors: NotFound when there is no such attribute, InvalidArgument when it is of another type.
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
//
// Errors of all methods: ResourceExhausted (disk full), PermissionDenied, NotFound (no such
// folder), else Internal. After an error only destruction makes sense.
class Hdf5Writer {
 public:
  static absl::StatusOr<Hdf5Writer> Create(const std::string& path);
  ~Hdf5Writer();
  Hdf5Writer(Hdf5Writer&&) noexcept;
  Hdf5Writer& operator=(Hdf5Writer&&) noexcept;

  // A contiguous float32 data set, written straight from `values`.
  absl::Status Write(const std::string& dataset, std::span<const int64_t> shape,
                     std::span<const float> values);

  // A one-dimensional data set that grows by Append: contiguous when it ends below 64 Ki elements,
  // else in chunks of as many. Appends of fewer elements are collected in memory.
  absl::Status CreateAppendable(const std::string& dataset, bool is_float);
  absl::Status Append(const std::string& dataset, std::span<const int64_t> values);
  absl::Status Append(const std::string& dataset, std::span<const float> values);

  // A contiguous data set of `size` opaque bytes, as h5py's V1, to be filled by WriteOpaque.
  absl::Status CreateOpaque(const std::string& dataset, int64_t size);
  absl::Status WriteOpaque(const std::string& dataset, int64_t begin, std::string_view bytes);

  // `object`: a data set or group that has been created, "/" for the file.
  absl::Status IntAttribute(const std::string& object, const std::string& name, int64_t value);
  // A variable-length UTF-8 string (fixed-length ones end at 64 KiB).
  absl::Status StringAttribute(const std::string& object, const std::string& name,
                               const std::string& value);

  // `durable` false: no fsync of the file and its folder, for one who publishes many files at once.
  absl::Status Finish(bool durable = true);

 private:
  struct Impl;
  explicit Hdf5Writer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
