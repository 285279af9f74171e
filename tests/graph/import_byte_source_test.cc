#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>
#include <string>

#include "graph/import/byte_source.h"
#include "graph/stable_partition.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

std::string Gzip(const std::string& text) {
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string LongText() {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += std::to_string(i * 7919) + "\n";
  return text;
}

class ByteSourceTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_.File(name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  // In pieces of `piece` bytes at most.
  static absl::StatusOr<std::string> ReadAll(const std::string& path, size_t piece = 1000) {
    auto source = ByteSource::Open(path);
    if (!source.ok()) return source.status();
    std::string all;
    std::string buffer(piece, '\0');
    while (true) {
      const absl::StatusOr<size_t> n = (*source)->Read(buffer.data(), piece);
      if (!n.ok()) return n.status();
      if (*n == 0) return all;
      all.append(buffer, 0, *n);
    }
  }

  testing::TempDir folder_;
};

TEST_F(ByteSourceTest, ReadsAPlainFile) {
  EXPECT_EQ(*ReadAll(Write("a.tsv", "a\tb\n")), "a\tb\n");
  EXPECT_EQ(*ReadAll(Write("b.tsv", LongText())), LongText());
  EXPECT_EQ(*ReadAll(Write("empty.tsv", "")), "");
}

TEST_F(ByteSourceTest, ReadsGzipWhateverItsName) {
  EXPECT_EQ(*ReadAll(Write("a.gz", Gzip(LongText()))), LongText());
  EXPECT_EQ(*ReadAll(Write("a.tsv", Gzip("a\tb\n"))), "a\tb\n");
  EXPECT_EQ(*ReadAll(Write("empty.gz", Gzip(""))), "");
}

TEST_F(ByteSourceTest, ReadsAllMembersOfAGzipFile) {
  EXPECT_EQ(*ReadAll(Write("a.gz", Gzip("one\n") + Gzip("") + Gzip("two\n"))), "one\ntwo\n");
  // Padded with zeros, as tapes do.
  EXPECT_EQ(*ReadAll(Write("b.gz", Gzip("one\n") + std::string(600, '\0'))), "one\n");
}

TEST_F(ByteSourceTest, ReadsAllFramesOfAZstdFile) {
  EXPECT_EQ(*ReadAll(Write("a.zst", Zstd(LongText()) + Zstd("end\n"))), LongText() + "end\n");
  EXPECT_EQ(*ReadAll(Write("a.tsv", Zstd("a\tb\n")), 1), "a\tb\n");
  EXPECT_EQ(*ReadAll(Write("empty.zst", Zstd(""))), "");
}

TEST_F(ByteSourceTest, ReadsAZstdFileThatBeginsWithASkippableFrame) {
  const std::string skippable("\x50\x2A\x4D\x18\x02\x00\x00\x00xy", 10);

  EXPECT_EQ(*ReadAll(Write("a.zst", skippable + Zstd("a\n"))), "a\n");
}

TEST_F(ByteSourceTest, ATruncatedFileIsDataLoss) {
  const std::string gzip = Gzip(LongText());
  const std::string zstd = Zstd(LongText());

  EXPECT_THAT(
      ReadAll(Write("a.gz", gzip.substr(0, gzip.size() / 2))),
      StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("a.gz"), HasSubstr("truncated"))));
  EXPECT_THAT(ReadAll(Write("b.gz", gzip.substr(0, gzip.size() - 4))),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("truncated")));
  EXPECT_THAT(ReadAll(Write("a.zst", zstd.substr(0, zstd.size() / 2))),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("truncated")));
}

TEST_F(ByteSourceTest, ADamagedFileIsDataLoss) {
  std::string gzip = Gzip(LongText());
  std::string zstd = Zstd(LongText());
  gzip[gzip.size() / 2] ^= 0x55;
  zstd[zstd.size() / 2] ^= 0x55;

  EXPECT_THAT(ReadAll(Write("a.gz", gzip)), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(ReadAll(Write("a.zst", zstd)), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(ReadAll(Write("b.gz", Gzip("a\n") + "garbage")),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(ByteSourceTest, ANameThatPromisesCompressionIsHeldToIt) {
  EXPECT_THAT(ReadAll(Write("a.gz", "a\tb\n")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no gzip data")));
  EXPECT_THAT(ReadAll(Write("b.gz", "")), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(ReadAll(Write("a.zst", "a\tb\n")), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(ReadAll(Write("b.zst", "")), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(ByteSourceTest, ForeignFormatsAreRefusedWithAdvice) {
  EXPECT_THAT(ReadAll(Write("a.tsv.xz", std::string("\xFD"
                                                    "7zXZ\0rest",
                                                    10))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("xz -dc")));
  EXPECT_THAT(ReadAll(Write("a.tsv.bz2", "BZh91AY&SYrest")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bzip2 -dc")));
  EXPECT_THAT(ReadAll(Write("a.parquet", "PAR1\x15\x04")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Parquet")));
  EXPECT_EQ(*ReadAll(Write("genes.tsv", "PAR1\tbinds\tBZh9\n")), "PAR1\tbinds\tBZh9\n");
}

TEST_F(ByteSourceTest, WhatCannotBeOpenedIsNamed) {
  EXPECT_THAT(ReadAll(folder_.File("none.tsv")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.tsv")));
  EXPECT_THAT(ReadAll(folder_.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is a folder")));
}

TEST_F(ByteSourceTest, DigestsTheBytesOnTheDisk) {
  const std::string compressed = Gzip("a\tb\n");
  const std::string path = Write("a.gz", compressed);

  const absl::StatusOr<InputDigest> digest = DigestInput(path);
  auto source = ByteSource::Open(path);
  char buffer[100];
  while (*(*source)->Read(buffer, sizeof buffer) > 0) {
  }

  ASSERT_THAT(digest, IsOk());
  EXPECT_EQ(digest->bytes, static_cast<int64_t>(compressed.size()));
  EXPECT_EQ(digest->hash, HashBytes(compressed));
  EXPECT_EQ((*source)->digest(), *digest);
  EXPECT_EQ((*source)->total_bytes(), digest->bytes);
}

TEST_F(ByteSourceTest, OnlyRegularFilesCanBeReadAgain) {
  const std::string fifo = folder_.File("pipe");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);

  EXPECT_TRUE(*IsRereadable(Write("a.tsv", "")));
  EXPECT_FALSE(*IsRereadable(fifo));
  EXPECT_FALSE(*IsRereadable("-"));
  EXPECT_THAT(IsRereadable(folder_.File("none")), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace weft
