// Finds the data sets for measuring (FB15k-237, UMLS, ...), which are not part of the project.
//
// They are looked for in the folder that the environment variable WEFT_DATA_DIR names: a folder
// NAME, or an archive NAME.tar.zst, which is unpacked into a temporary folder for this process.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace weft::testing {

// The folder with the files of data set `name`. Thread-safe; an archive is unpacked once a process.
// Errors: NotFound without WEFT_DATA_DIR or without such a data set (the message says what to do),
// DataLoss for an archive that cannot be unpacked.
absl::StatusOr<std::string> FindDataSet(const std::string& name);

}  // namespace weft::testing

// Assigns the folder of data set `name` to `folder` (a std::string), or skips the test saying why.
// An archive that is there but damaged fails the test.
#define WEFT_DATA_SET_OR_SKIP(folder, name)                              \
  do {                                                                   \
    auto weft_data_set = ::weft::testing::FindDataSet(name);             \
    if (absl::IsNotFound(weft_data_set.status())) {                      \
      GTEST_SKIP() << weft_data_set.status().message();                  \
    }                                                                    \
    ASSERT_TRUE(weft_data_set.ok()) << weft_data_set.status().message(); \
    (folder) = *std::move(weft_data_set);                                \
  } while (false)
