// TempDir is a fresh, empty folder that is removed with all it holds at the end of its life.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <system_error>

namespace weft::testing {

class TempDir {
 public:
  TempDir() {
    static std::atomic<int> next = 0;
    path_ =
        ::testing::TempDir() + "weft_" + std::to_string(getpid()) + "_" + std::to_string(next++);
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace weft::testing
