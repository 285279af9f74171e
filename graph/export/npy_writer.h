// NpyWriter writes a float32 array in NumPy's .npy format (version 1.0), row by row or in blocks.
//
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
// The file appears when it is whole. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/output_file.h"

namespace weft {

class NpyWriter {
 public:
  // Row-major, little-endian.
  static absl::StatusOr<std::unique_ptr<NpyWriter>> Create(const std::string& path,
                                                           std::span<const int64_t> shape);

  absl::Status Add(std::span<const float> values);
  // All of the shape's values have been added.
  absl::Status Finish();

 private:
  NpyWriter(std::unique_ptr<OutputFile> file, int64_t size)
      : file_(std::move(file)), missing_(size) {}

  const std::unique_ptr<OutputFile> file_;
  int64_t missing_;  // values still to be added
};

}  // namespace weft
