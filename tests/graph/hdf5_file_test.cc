#include "graph/hdf5_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "services/common/file_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempDir;

std::vector<float> Iota(size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.5f);
  return values;
}

TEST(Hdf5FileTest, RowsComeBackAsWritten) {
  const TempDir dir;
  const std::string path = dir.File("rows.h5");
  const std::vector<float> values = Iota(6);
  auto writer = Hdf5Writer::Create(path);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(writer->Write("a/b", std::vector<int64_t>{3, 2}, values), IsOk());
  ASSERT_THAT(writer->Finish(), IsOk());

  auto reader = Hdf5Reader::Open(path);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT(*reader->Shape("a/b"), ElementsAre(3, 2));
  std::vector<float> rows(4);
  ASSERT_THAT(reader->ReadRows("a/b", 1, 2, std::span<float>(rows)), IsOk());
  EXPECT_THAT(rows, ElementsAre(2.5f, 3.5f, 4.5f, 5.5f));
}

TEST(Hdf5FileTest, AppendedDataSetsOfAnyLengthComeBack) {
  const TempDir dir;
  const int64_t chunk = 65536;
  for (const int64_t length :
       {int64_t{0}, int64_t{1}, chunk - 1, chunk, chunk + 1, 3 * chunk + 7}) {
    SCOPED_TRACE(length);
    const std::string path = dir.File("appended.h5");
    auto writer = Hdf5Writer::Create(path);
    ASSERT_THAT(writer, IsOk());
    ASSERT_THAT(writer->CreateAppendable("ids", /*is_float=*/false), IsOk());
    std::vector<int64_t> ids(static_cast<size_t>(length));
    std::iota(ids.begin(), ids.end(), 100);
    for (size_t begin = 0; begin < ids.size(); begin += 50001) {  // across chunk borders
      const size_t n = std::min<size_t>(50001, ids.size() - begin);
      ASSERT_THAT(writer->Append("ids", std::span<const int64_t>(ids).subspan(begin, n)), IsOk());
    }
    ASSERT_THAT(writer->Finish(), IsOk());

    auto reader = Hdf5Reader::Open(path);
    ASSERT_THAT(reader, IsOk());
    EXPECT_THAT(*reader->Shape("ids"), ElementsAre(length));
    std::vector<int64_t> read(ids.size());
    ASSERT_THAT(reader->Read("ids", 0, std::span<int64_t>(read)), IsOk());
    EXPECT_EQ(read, ids);
  }
}

TEST(Hdf5FileTest, OpaqueBytesCanBeFilledInPieces) {
  const TempDir dir;
  const std::string path = dir.File("opaque.h5");
  auto writer = Hdf5Writer::Create(path);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(writer->CreateOpaque("optimizer/state_dict", 6), IsOk());
  ASSERT_THAT(writer->WriteOpaque("optimizer/state_dict", 2, "cdef"), IsOk());
  ASSERT_THAT(writer->WriteOpaque("optimizer/state_dict", 0, "ab"), IsOk());
  ASSERT_THAT(writer->Finish(), IsOk());

  auto reader = Hdf5Reader::Open(path);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ(*reader->ReadOpaque("optimizer/state_dict"), "abcdef");
  std::string middle(3, ' ');
  ASSERT_THAT(reader->ReadOpaque("optimizer/state_dict", 1, std::span<char>(middle)), IsOk());
  EXPECT_EQ(middle, "bcd");
}

TEST(Hdf5FileTest, AttributesComeBackHoweverLong) {
  const TempDir dir;
  const std::string path = dir.File("attributes.h5");
  const std::string long_text(200'000, 'x');  // beyond HDF5's 64 KiB for fixed-length strings
  auto writer = Hdf5Writer::Create(path);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(writer->IntAttribute("/", "format_version", 1), IsOk());
  ASSERT_THAT(writer->StringAttribute("/", "config/json", long_text), IsOk());
  ASSERT_THAT(writer->StringAttribute("/", "empty", ""), IsOk());
  ASSERT_THAT(writer->Finish(), IsOk());

  auto reader = Hdf5Reader::Open(path);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ(*reader->IntAttribute("/", "format_version"), 1);
  EXPECT_EQ(*reader->StringAttribute("/", "config/json"), long_text);
  EXPECT_EQ(*reader->StringAttribute("/", "empty"), "");
  EXPECT_THAT(reader->IntAttribute("/", "absent"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(reader->IntAttribute("/", "config/json"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not an integer")));
}

TEST(Hdf5FileTest, DataSetsAreListedInTheOrderOfTheirCreation) {
  const TempDir dir;
  const std::string path = dir.File("order.h5");
  auto writer = Hdf5Writer::Create(path);
  ASSERT_THAT(writer, IsOk());
  for (const char* name : {"model/z", "model/b/y", "model/b/c", "model/a", "other"}) {
    ASSERT_THAT(writer->Write(name, std::vector<int64_t>{1}, Iota(1)), IsOk());
  }
  ASSERT_THAT(writer->Finish(), IsOk());

  auto reader = Hdf5Reader::Open(path);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT(*reader->ListDatasets("model"),
              ElementsAre("model/z", "model/b/y", "model/b/c", "model/a"));
  EXPECT_THAT(*reader->ListDatasets("absent"), ElementsAre());
}

TEST(Hdf5FileTest, WhatIsWrongIsSaidWithFileAndDataSet) {
  const TempDir dir;
  const std::string path = dir.File("wrong.h5");
  auto writer = Hdf5Writer::Create(path);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(writer->Write("m", std::vector<int64_t>{3, 2}, Iota(6)), IsOk());
  ASSERT_THAT(writer->Write("v", std::vector<int64_t>{3}, Iota(3)), IsOk());
  ASSERT_THAT(writer->CreateOpaque("bytes", 3), IsOk());
  ASSERT_THAT(writer->WriteOpaque("bytes", 0, "abc"), IsOk());
  ASSERT_THAT(writer->Finish(), IsOk());
  auto reader = Hdf5Reader::Open(path);
  ASSERT_THAT(reader, IsOk());
  std::vector<float> floats(5);
  std::vector<int64_t> ints(2);
  std::string bytes(4, ' ');

  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(
      reader->ReadRows("no/such", 0, 1, std::span<float>(floats)),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("wrong.h5: has no data set no/such")));
  EXPECT_THAT(reader->ReadRows("m", 0, 2, std::span<float>(floats)),
              StatusIs(invalid, HasSubstr("data set m has shape [3, 2]")));
  EXPECT_THAT(reader->Read("v", 0, std::span<int64_t>(ints)),
              StatusIs(invalid, HasSubstr("data set v does not hold integers")));
  EXPECT_THAT(reader->Read("v", 0, std::span<float>(floats)),
              StatusIs(invalid, HasSubstr("has 3 rows; wanted 0 to 5")));
  EXPECT_THAT(reader->Read("m", 0, std::span<float>(floats)),
              StatusIs(invalid, HasSubstr("needs one dimension")));
  EXPECT_THAT(reader->Read("bytes", 0, std::span<float>(floats)),
              StatusIs(invalid, HasSubstr("does not hold numbers")));
  EXPECT_THAT(reader->ReadOpaque("v", 0, std::span<char>(bytes)),
              StatusIs(invalid, HasSubstr("does not hold opaque bytes")));
}

TEST(Hdf5FileTest, MissingFilesAndFilesOfAnotherKindAreTold) {
  const TempDir dir;
  ASSERT_THAT(WriteFileAtomically(dir.File("text.h5"), "not HDF5 at all"), IsOk());

  EXPECT_THAT(Hdf5Reader::Open(dir.File("absent.h5")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent.h5")));
  EXPECT_THAT(Hdf5Reader::Open(dir.File("text.h5")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("text.h5: not a whole HDF5 file")));
  EXPECT_THAT(Hdf5Writer::Create(dir.File("no/folder/x.h5")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no/folder/x.h5")));
}

TEST(Hdf5FileTest, TruncationAnywhereIsDataLoss) {
  const TempDir dir;
  const std::string path = dir.File("whole.h5");
  auto writer = Hdf5Writer::Create(path);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(writer->Write("model/a", std::vector<int64_t>{1000, 4}, Iota(4000)), IsOk());
  ASSERT_THAT(writer->StringAttribute("/", "config/json", "{}"), IsOk());
  ASSERT_THAT(writer->Finish(), IsOk());
  const std::string whole = *ReadFile(path);

  for (size_t size = 0; size < whole.size(); size += 1024) {
    SCOPED_TRACE(size);
    const std::string cut = dir.File("cut.h5");
    ASSERT_THAT(WriteFileAtomically(cut, whole.substr(0, size)), IsOk());
    EXPECT_THAT(Hdf5Reader::Open(cut), StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST(Hdf5FileTest, AnUnfinishedFileLeavesNothingBehind) {
  const TempDir dir;
  {
    auto writer = Hdf5Writer::Create(dir.File("x.h5"));
    ASSERT_THAT(writer, IsOk());
    ASSERT_THAT(writer->CreateAppendable("ids", /*is_float=*/false), IsOk());
    EXPECT_FALSE(std::filesystem::is_empty(dir.path()));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// Writes under a limit of the file size and ends the process, so that HDF5 cleans up, too.
[[noreturn]] void WriteUnderLimit(const std::string& path, rlim_t limit) {
  std::signal(SIGXFSZ, SIG_IGN);  // as a full disk: the write fails
  const rlimit file_size{limit, limit};
  setrlimit(RLIMIT_FSIZE, &file_size);
  absl::Status status = absl::OkStatus();
  {
    auto writer = Hdf5Writer::Create(path);
    if (!writer.ok()) std::exit(2);
    status = writer->CreateAppendable("ids", /*is_float=*/false);
    const std::vector<int64_t> ids(100'000, 7);
    if (status.ok()) status = writer->Append("ids", std::span<const int64_t>(ids));
    if (status.ok()) status = writer->Write("rows", std::vector<int64_t>{6}, Iota(6));
    if (status.ok()) status = writer->Finish();
  }
  std::exit(absl::IsResourceExhausted(status) ? 0 : 3);
}

TEST(Hdf5FileDeathTest, AFullDiskIsAnErrorAndLeavesNoFile) {
  const TempDir dir;
  for (const rlim_t limit : {0, 1, 1000, 4096, 600'000, 800'000}) {
    SCOPED_TRACE(limit);
    EXPECT_EXIT(WriteUnderLimit(dir.File("x.h5"), limit), ::testing::ExitedWithCode(0), "");
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  }
}

TEST(Hdf5FileTest, ThreadsAndReadersDoNotDisturbEachOther) {
  const TempDir dir;
  const std::string path = dir.File("shared.h5");
  auto writer = Hdf5Writer::Create(path);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(writer->Write("v", std::vector<int64_t>{1000}, Iota(1000)), IsOk());
  ASSERT_THAT(writer->Finish(), IsOk());

  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        auto reader = Hdf5Reader::Open(path);
        std::vector<float> v(1000);
        if (reader.ok() && reader->Read("v", 0, std::span<float>(v)).ok() && v[999] == 999.5f) {
          ++right[t];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, ElementsAre(20, 20, 20, 20));
}

}  // namespace
}  // namespace weft
