#include "tests/testing/data_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A fresh folder that WEFT_DATA_DIR names, for one test.
class FindDataSetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* before = std::getenv("WEFT_DATA_DIR");
    if (before != nullptr) before_ = before;
    dir_ = absl::StrCat(::testing::TempDir(), "data_set_", getpid(), "_",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(dir_);
    setenv("WEFT_DATA_DIR", dir_.c_str(), 1);
  }
  void TearDown() override {
    fs::remove_all(dir_);
    setenv("WEFT_DATA_DIR", before_.c_str(), 1);
  }

  void Write(const std::string& name, const std::string& contents) {
    fs::create_directories(fs::path(dir_ + "/" + name).parent_path());
    std::ofstream(dir_ + "/" + name) << contents;
  }

  std::string dir_;
  std::string before_;
};

TEST_F(FindDataSetTest, FindsAFolder) {
  Write("Toy/train.txt", "a\tr\tb\n");

  EXPECT_EQ(FindDataSet("Toy").value(), dir_ + "/Toy");
}

TEST_F(FindDataSetTest, UnpacksAnArchiveOnce) {
  Write("made/Toy/train.txt", "a\tr\tb\n");
  ASSERT_EQ(std::system(absl::StrCat("tar -cf ", dir_, "/t.tar -C ", dir_, "/made Toy").c_str()),
            0);
  const std::string tar = ReadFile(dir_ + "/t.tar").value();
  std::string compressed(ZSTD_compressBound(tar.size()), '\0');
  compressed.resize(ZSTD_compress(compressed.data(), compressed.size(), tar.data(), tar.size(), 3));
  Write("Toy.tar.zst", compressed);

  const std::string folder = FindDataSet("Toy").value();

  EXPECT_EQ(ReadFile(folder + "/train.txt").value(), "a\tr\tb\n");
  EXPECT_EQ(FindDataSet("Toy").value(), folder);
}

TEST_F(FindDataSetTest, DamagedArchiveIsDataLoss) {
  Write("Toy.tar.zst", "this is not zstd");

  const auto found = FindDataSet("Toy");

  EXPECT_EQ(found.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(found.status().message(), HasSubstr("Toy.tar.zst"));
}

TEST_F(FindDataSetTest, MissingDataSetNamesWhatWasLookedFor) {
  const auto found = FindDataSet("Toy");

  EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(found.status().message(), HasSubstr(dir_ + "/Toy.tar.zst"));
}

TEST_F(FindDataSetTest, WithoutTheVariableItIsNamed) {
  unsetenv("WEFT_DATA_DIR");

  const auto found = FindDataSet("Toy");

  EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(found.status().message(), HasSubstr("WEFT_DATA_DIR"));
}

}  // namespace
}  // namespace weft::testing
