#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/import/line_reader.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Gives a text in pieces of a few bytes, as a pipe may.
class TextSource : public ByteSource {
 public:
  TextSource(std::string text, size_t piece) : text_(std::move(text)), piece_(piece) {}

  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    const size_t n = std::min({capacity, piece_, text_.size() - at_});
    std::memcpy(out, text_.data() + at_, n);
    at_ += n;
    return n;
  }
  InputDigest digest() const override { return {}; }
  int64_t total_bytes() const override { return 0; }

 private:
  const std::string text_;
  const size_t piece_;
  size_t at_ = 0;
};

struct Block {
  std::string text;
  int64_t offset;
  bool overlong;
  bool operator==(const Block&) const = default;
};

std::vector<Block> Blocks(const std::string& text, const LineReader::Options& options,
                          size_t piece = 1000) {
  LineReader reader(std::make_unique<TextSource>(text, piece), options);
  std::vector<Block> blocks;
  LineBlock block;
  while (*reader.Read(&block)) {
    blocks.push_back({std::string(block.text()), block.offset, block.overlong});
  }
  return blocks;
}

TEST(LineReaderTest, CutsBlocksAtLineEnds) {
  EXPECT_THAT(Blocks("aa\nbb\ncc\n", {.block_bytes = 7, .max_line_bytes = 100}),
              ElementsAre(Block{"aa\nbb\n", 0, false}, Block{"cc\n", 6, false}));
}

TEST(LineReaderTest, TheLastLineMayLackItsEnd) {
  EXPECT_THAT(Blocks("aa\nbb", {.block_bytes = 4, .max_line_bytes = 100}),
              ElementsAre(Block{"aa\n", 0, false}, Block{"bb", 3, false}));
}

TEST(LineReaderTest, AnEmptyInputHasNoBlocks) {
  EXPECT_THAT(Blocks("", {.block_bytes = 4, .max_line_bytes = 100}), IsEmpty());
}

TEST(LineReaderTest, RemovesAByteOrderMark) {
  EXPECT_THAT(Blocks("\xEF\xBB\xBF"
                     "a\n",
                     {.block_bytes = 16, .max_line_bytes = 100}, 1),
              ElementsAre(Block{"a\n", 3, false}));
  EXPECT_THAT(Blocks("\xEF\xBB\xBF", {.block_bytes = 16, .max_line_bytes = 100}), IsEmpty());
  // Only at the beginning.
  EXPECT_THAT(Blocks("a\n\xEF\xBB\xBF"
                     "b\n",
                     {.block_bytes = 2, .max_line_bytes = 100}),
              ElementsAre(Block{"a\n", 0, false}, Block{"\xEF\xBB\xBF"
                                                        "b\n",
                                                        2, false}));
}

TEST(LineReaderTest, ABlockGrowsForALineThatIsLongButAllowed) {
  const std::string line = std::string(90, 'x') + "\n";

  EXPECT_THAT(Blocks("a\n" + line + "b\n", {.block_bytes = 4, .max_line_bytes = 100}),
              ElementsAre(Block{"a\n", 0, false}, Block{line + "b\n", 2, false}));
}

TEST(LineReaderTest, CutsALineThatIsTooLongAndSkipsTheRest) {
  const std::string line(100'000, 'x');

  const std::vector<Block> blocks =
      Blocks("a\n" + line + "\nb\n", {.block_bytes = 1000, .max_line_bytes = 2000});

  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0], (Block{"a\n", 0, false}));
  EXPECT_TRUE(blocks[1].overlong);
  EXPECT_EQ(blocks[1].text, std::string(100, 'x'));
  EXPECT_EQ(blocks[1].offset, 2);
  EXPECT_EQ(blocks[2], (Block{"b\n", 100'003, false}));
}

TEST(LineReaderTest, KeepsTheLinesThatWereReadTogetherWithTheEndOfATooLongOne) {
  std::string joined;
  for (const Block& block :
       Blocks(std::string(50, 'x') + "\na\nb\nccc", {.block_bytes = 6, .max_line_bytes = 4})) {
    if (!block.overlong) joined += block.text;
  }

  EXPECT_EQ(joined, "a\nb\nccc");
}

TEST(LineReaderTest, ATooLongLineMayBeTheLast) {
  const std::vector<Block> blocks =
      Blocks(std::string(5000, 'x'), {.block_bytes = 100, .max_line_bytes = 200});

  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_TRUE(blocks[0].overlong);
}

TEST(LineReaderTest, LosesNoByteWhateverTheSizes) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    const size_t lines = random() % 20;
    for (size_t i = 0; i < lines; ++i) text += std::string(random() % 30, 'a' + i % 26) + "\n";
    if (random() % 2 == 0) text += "end";
    const LineReader::Options options = {.block_bytes = 1 + random() % 40, .max_line_bytes = 50};

    std::string joined;
    for (const Block& block : Blocks(text, options, 1 + random() % 10)) {
      EXPECT_EQ(block.offset, static_cast<int64_t>(joined.size()));
      EXPECT_FALSE(block.overlong);
      EXPECT_TRUE(block.text.back() == '\n' || joined.size() + block.text.size() == text.size());
      joined += block.text;
    }
    ASSERT_EQ(joined, text);
  }
}

}  // namespace
}  // namespace weft
