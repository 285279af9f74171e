#include "graph/checkpoint/pickle_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "graph/checkpoint/pickle_writer.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using Kind = PickleValue::Kind;

// A pickle of protocol 2 with these opcodes.
std::string Pickle(std::string_view opcodes) { return "\x80\x02" + std::string(opcodes); }

TEST(PickleReaderTest, ReadsWhatTheWriterWrites) {
  PickleWriter w;
  w.Dict();
  w.String("numbers");
  w.List();
  for (const int64_t n : {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{-1}, int64_t{1} << 31,
                          std::numeric_limits<int64_t>::min()}) {
    w.Int(n);
    w.Append();
  }
  w.SetItem();
  w.String("lr");
  w.Float(0.1);
  w.SetItem();
  w.String("flags");
  w.List();
  w.Bool(true);
  w.Append();
  w.Bool(false);
  w.Append();
  w.None();
  w.Append();
  w.SetItem();
  w.String("sum");
  const int64_t shape[] = {3, 2};
  w.Tensor("7", shape);
  w.SetItem();

  const std::string bytes = w.Finish();
  const auto document = ParsePickle(bytes);
  ASSERT_THAT(document, IsOk());
  const PickleValue& root = document->root();
  const PickleValue* numbers = root.Find("numbers");
  ASSERT_NE(numbers, nullptr);
  std::vector<int64_t> read;
  for (const PickleValue* n : numbers->items) read.push_back(n->integer);
  EXPECT_THAT(read,
              ElementsAre(0, 255, 256, -1, int64_t{1} << 31, std::numeric_limits<int64_t>::min()));
  EXPECT_EQ(root.Find("lr")->number, 0.1);
  EXPECT_EQ(root.Find("flags")->items[0]->integer, 1);
  EXPECT_EQ(root.Find("flags")->items[1]->kind, Kind::kBool);
  EXPECT_EQ(root.Find("flags")->items[2]->kind, Kind::kNone);
  ASSERT_EQ(root.Find("sum")->kind, Kind::kTensor);
  const PickledTensor& tensor = document->tensor(*root.Find("sum"));
  EXPECT_EQ(tensor.storage, "7");
  EXPECT_EQ(tensor.storage_size, 6);
  EXPECT_THAT(tensor.shape, ElementsAre(3, 2));
  EXPECT_EQ(root.Find("absent"), nullptr);
}

TEST(PickleReaderTest, ReadsIntegersOfEveryForm) {
  const auto value = [](std::string_view opcodes) {
    const auto document = ParsePickle(Pickle(opcodes));
    EXPECT_THAT(document, IsOk());
    return document.ok() ? document->root().integer : 0;
  };
  using std::literals::string_view_literals::operator""sv;
  EXPECT_EQ(value("K\xff."), 255);
  EXPECT_EQ(value("M\x01\x02."), 0x0201);
  EXPECT_EQ(value("J\xfe\xff\xff\xff."), -2);
  EXPECT_EQ(value("\x8a\x00."sv), 0);
  EXPECT_EQ(value("\x8a\x01\xff."), -1);
  EXPECT_EQ(value("\x8a\x02\xff\x00."sv), 255);
}

TEST(PickleReaderTest, NothingIsCalled) {
  EXPECT_THAT(ParsePickle(Pickle("cos\nsystem\nX\x02\0\0\0ls\x85R.")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("wants os.system")));
  EXPECT_THAT(ParsePickle(Pickle("c__builtin__\neval\n.")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("wants __builtin__.eval")));
  EXPECT_THAT(ParsePickle(Pickle("ctorch\nDoubleStorage\n.")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("wants torch.DoubleStorage")));
  // An OrderedDict with arguments would call its constructor on them.
  EXPECT_THAT(ParsePickle(Pickle("ccollections\nOrderedDict\n]\x85R.")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("OrderedDict")));
  for (const char* opcode :
       {"i", "o", "\x81", "\x82", "b", "V", "S", "P", "I", "L", "\x8c", "\x93"}) {
    EXPECT_THAT(ParsePickle(Pickle(std::string("N") + opcode)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("opcode")))
        << opcode;
  }
}

TEST(PickleReaderTest, MalformedProgramsAreRefused) {
  const char* bad[] = {
      ".",                        // no value
      "NN.",                      // two values
      "N",                        // no end
      "(.",                       // an open mark
      "t.",                       // no mark
      "s.",                       // empty stack
      "]Ns.",                     // not enough for a key and a value
      "}Na.",                     // append to a dictionary
      "]NNs.",                    // set item of a list
      "}(Nu.",                    // a key without a value
      "N(a.",                     // takes what lies under a mark
      "h\x05.",                   // nothing stored there
      "NNR.",                     // calls None
      "NQ.",                      // refers to None
      "ctorch\nFloatStorage\n.",  // leaves no data
      "X\xff\xff\xff\x7fN.",      // a string beyond the end
      "\x8a\x09"
      "123456789.",  // an integer of 72 bits
      "G1234.",      // half a number
      "N.N",         // goes on
  };
  for (const char* opcodes : bad) {
    SCOPED_TRACE(opcodes);
    EXPECT_THAT(ParsePickle(Pickle(opcodes)), StatusIs(absl::StatusCode::kDataLoss));
  }
  EXPECT_THAT(ParsePickle("\x80\x04N."),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("has protocol 4, needs 2")));
  EXPECT_THAT(ParsePickle(""), StatusIs(absl::StatusCode::kDataLoss));
}

// The opcodes of a tensor over storage "0" of 6 floats.
std::string TensorPickle(const std::string& offset, const std::string& shape,
                         const std::string& strides) {
  using std::literals::string_literals::operator""s;
  return Pickle(
      "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
      "X\1\0\0\0"s
      "0X\3\0\0\0cpuK\6tQ"s +
      offset + shape + strides + "\x89N" + "tR.");
}

TEST(PickleReaderTest, TensorsBeyondTheirStorageOrWithGapsAreRefused) {
  EXPECT_THAT(ParsePickle(TensorPickle("K\1", "K\5\x85", "K\1\x85")), IsOk());
  EXPECT_THAT(ParsePickle(TensorPickle("K\2", "K\5\x85", "K\1\x85")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("beyond its storage")));
  EXPECT_THAT(ParsePickle(TensorPickle("J\xff\xff\xff\xff", "K\5\x85", "K\1\x85")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("beyond its storage")));
  EXPECT_THAT(ParsePickle(TensorPickle("K\1", "K\3\x85", "K\2\x85")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("with gaps")));
  EXPECT_THAT(ParsePickle(TensorPickle("K\1", "K\3K\2\x86", "K\1\x85")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("malformed tensor")));
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  EXPECT_THAT(ParsePickle(TensorPickle("K\1", huge + huge + "\x86", huge + "K\1\x86")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("impossible shape")));
}

TEST(PickleReaderTest, ValuesThatHoldThemselvesDoNoHarm) {
  const auto document = ParsePickle(Pickle("]q\1h\1a."));
  ASSERT_THAT(document, IsOk());
  EXPECT_EQ(document->root().items[0], &document->root());
}

TEST(PickleReaderTest, DeepNestingDoesNoHarm) {
  EXPECT_THAT(ParsePickle(Pickle(std::string(500'000, ']') + std::string(499'999, 'a') + ".")),
              IsOk());
}

}  // namespace
}  // namespace weft
