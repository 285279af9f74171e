#include "graph/checkpoint/optimizer_pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph/checkpoint/pickle_writer.h"
#include "graph/checkpoint/zip_archive.h"
#include "services/common/random.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

class MemoryBytes : public RandomAccessSink, public RandomAccessSource {
 public:
  MemoryBytes() = default;
  explicit MemoryBytes(std::string contents) : bytes(std::move(contents)) {}

  absl::Status Write(int64_t begin, std::string_view data) override {
    bytes.resize(std::max(bytes.size(), static_cast<size_t>(begin) + data.size()));
    std::ranges::copy(data, bytes.begin() + begin);
    return absl::OkStatus();
  }
  int64_t size() const override { return static_cast<int64_t>(bytes.size()); }
  absl::Status Read(int64_t begin, std::span<char> out) const override {
    std::copy_n(bytes.begin() + begin, out.size(), out.begin());
    return absl::OkStatus();
  }

  std::string bytes;
};

class FailingSink : public RandomAccessSink {
 public:
  absl::Status Write(int64_t, std::string_view) override {
    return absl::ResourceExhaustedError("disk full");
  }
};

const std::vector<float> kFirst = {1, 2, 3, 4, 5, 6};
const std::vector<float> kSecond = {0.5f, 0.25f};

OptimizerState ModelState() {
  OptimizerState state;
  state.kind = OptimizerKind::kAsyncAdagrad;
  state.lr = 0.1;
  state.steps = 17;
  state.parameters = {{{3, 2}, kFirst}, {{2}, kSecond}};
  return state;
}

std::string Written(const OptimizerState& state) {
  MemoryBytes sink;
  EXPECT_THAT(WriteOptimizerState(state, &sink), IsOk());
  return sink.bytes;
}

// Reads all there is: what a checkpoint's reader would.
absl::Status ReadAll(const std::string& bytes) {
  const MemoryBytes source(bytes);
  const auto reader = OptimizerStateReader::Open(&source);
  if (!reader.ok()) return reader.status();
  for (size_t i = 0; i < reader->parameters().size(); ++i) {
    int64_t size = 1;
    for (const int64_t extent : reader->parameters()[i].shape) size *= extent;
    std::vector<float> sum(static_cast<size_t>(size));
    if (absl::Status status = reader->ReadSum(i, sum); !status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(OptimizerPickleTest, TheModelsStateComesBack) {
  const MemoryBytes source(Written(ModelState()));

  const auto reader = OptimizerStateReader::Open(&source);
  ASSERT_THAT(reader, IsOk());
  ASSERT_EQ(reader->parameters().size(), 2);
  EXPECT_THAT(reader->parameters()[0].shape, ElementsAre(3, 2));
  EXPECT_EQ(reader->parameters()[0].steps, 17);
  std::vector<float> first(6);
  std::vector<float> second(2);
  ASSERT_THAT(reader->ReadSum(0, first), IsOk());
  ASSERT_THAT(reader->ReadSum(1, second), IsOk());
  EXPECT_EQ(first, kFirst);
  EXPECT_EQ(second, kSecond);
}

TEST(OptimizerPickleTest, ATablesStateComesBackHoweverManyRows) {
  for (const size_t rows : {size_t{0}, size_t{1}, size_t{100'000}}) {
    SCOPED_TRACE(rows);
    std::vector<float> sums(rows);
    for (size_t i = 0; i < rows; ++i) sums[i] = static_cast<float>(i);
    OptimizerState state;
    state.parameters = {{{static_cast<int64_t>(rows)}, sums}};
    const MemoryBytes source(Written(state));

    const auto reader = OptimizerStateReader::Open(&source);
    ASSERT_THAT(reader, IsOk());
    ASSERT_EQ(reader->parameters().size(), 1);
    std::vector<float> read(rows);
    ASSERT_THAT(reader->ReadSum(0, read), IsOk());
    EXPECT_EQ(read, sums);
  }
}

TEST(OptimizerPickleTest, AModelWithoutParametersHasNone) {
  OptimizerState state;
  state.kind = OptimizerKind::kAsyncAdagrad;
  const MemoryBytes source(Written(state));

  const auto reader = OptimizerStateReader::Open(&source);
  ASSERT_THAT(reader, IsOk());
  EXPECT_TRUE(reader->parameters().empty());
}

TEST(OptimizerPickleTest, TheSizeIsKnownBeforehandAndTheBytesAreAlwaysTheSame) {
  const auto size = WriteOptimizerState(ModelState(), nullptr);
  ASSERT_THAT(size, IsOk());
  const std::string bytes = Written(ModelState());

  EXPECT_EQ(*size, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(Written(ModelState()), bytes);
}

TEST(OptimizerPickleTest, ManyParametersComeBack) {
  OptimizerState state;
  state.kind = OptimizerKind::kAsyncAdagrad;
  state.steps = 1;
  std::vector<float> values(4000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  for (size_t i = 0; i < values.size(); ++i) state.parameters.push_back({{1}, {&values[i], 1}});
  const MemoryBytes source(Written(state));

  const auto reader = OptimizerStateReader::Open(&source);
  ASSERT_THAT(reader, IsOk());
  ASSERT_EQ(reader->parameters().size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    float sum = 0;
    ASSERT_THAT(reader->ReadSum(i, {&sum, 1}), IsOk());
    ASSERT_EQ(sum, values[i]);
  }
}

TEST(OptimizerPickleTest, AFailureOfTheSinkIsToldAsItIs) {
  FailingSink sink;
  EXPECT_THAT(WriteOptimizerState(ModelState(), &sink),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
}

TEST(OptimizerPickleTest, TruncationAnywhereIsDataLoss) {
  const std::string whole = Written(ModelState());
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_THAT(ReadAll(whole.substr(0, size)), StatusIs(absl::StatusCode::kDataLoss)) << size;
  }
}

// A flipped bit may be in a place that does not matter (an attribute of a member); what is read is
// then what was written, and nothing crashes.
TEST(OptimizerPickleTest, FlippedBitsAreFoundOrHarmless) {
  const std::string whole = Written(ModelState());
  int64_t found = 0;
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const MemoryBytes source(flipped);
    const auto reader = OptimizerStateReader::Open(&source);
    if (!reader.ok() || reader->parameters().size() != 2) {
      ++found;
      continue;
    }
    std::vector<float> first(6);
    ASSERT_THAT(reader->parameters()[0].shape, ElementsAre(3, 2)) << bit;
    if (!reader->ReadSum(0, first).ok()) {
      ++found;
      continue;
    }
    ASSERT_EQ(first, kFirst) << bit;
  }
  EXPECT_GT(found, static_cast<int64_t>(whole.size()) * 4);
}

TEST(OptimizerPickleTest, FilesOfOldTorchAreRefusedByName) {
  const std::string magic = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  EXPECT_THAT(ReadAll(magic + "\x80\x02M\xe9\x03."),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("torch older than 1.6")));
}

// An archive with this pickle and one storage "0" of six floats.
std::string Archive(const std::string& pickle) {
  const std::span<const char> storage(reinterpret_cast<const char*>(kFirst.data()),
                                      kFirst.size() * sizeof(float));
  const std::vector<ZipMember> members = {{"archive/data.pkl", pickle},
                                          {"archive/data/0", storage}};
  MemoryBytes sink;
  EXPECT_THAT(WriteZip(members, &sink), IsOk());
  return sink.bytes;
}

// {'state': {0: {'sum': tensor}}, 'param_groups': [{'params': ids}]}
std::string StatePickle(const std::string& storage, int64_t rows, std::vector<int64_t> ids) {
  PickleWriter w;
  w.Dict();
  w.String("state");
  w.Dict();
  w.Int(0);
  w.Dict();
  w.String("sum");
  w.Tensor(storage, std::span<const int64_t>(&rows, 1));
  w.SetItem();
  w.SetItem();
  w.SetItem();
  w.String("param_groups");
  w.List();
  w.Dict();
  w.String("params");
  w.List();
  for (const int64_t id : ids) {
    w.Int(id);
    w.Append();
  }
  w.SetItem();
  w.Append();
  w.SetItem();
  return w.Finish();
}

TEST(OptimizerPickleTest, WhatIsNoOptimizersStateIsRefused) {
  const auto loss = absl::StatusCode::kDataLoss;
  EXPECT_THAT(ReadAll(Archive(StatePickle("0", 6, {0}))), IsOk());
  EXPECT_THAT(ReadAll(Archive(StatePickle("0", 5, {0}))),
              StatusIs(loss, HasSubstr("has 24 bytes, needs 5 floats")));
  EXPECT_THAT(ReadAll(Archive(StatePickle("1", 6, {0}))), StatusIs(loss, HasSubstr("data/1")));
  EXPECT_THAT(ReadAll(Archive(StatePickle("../../etc/passwd", 6, {0}))), StatusIs(loss));
  EXPECT_THAT(ReadAll(Archive(StatePickle("0", 6, {}))),
              StatusIs(loss, HasSubstr("state of no parameter")));
  EXPECT_THAT(ReadAll(Archive(StatePickle("0", 6, {0, 0}))), StatusIs(loss, HasSubstr("bad id")));
  EXPECT_THAT(ReadAll(Archive(StatePickle("0", 6, {1}))), StatusIs(loss, HasSubstr("bad id")));
  EXPECT_THAT(ReadAll(Archive("\x80\x02N.")), StatusIs(loss, HasSubstr("no dictionary")));
  EXPECT_THAT(ReadAll("no archive at all"), StatusIs(loss, HasSubstr("not a whole zip archive")));
}

}  // namespace
}  // namespace weft
