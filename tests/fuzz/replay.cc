// Runs a fuzz target over the inputs of its corpus, each also cut short at every eighth of its
// length.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace weft {
namespace {

TEST(ReplayTest, EveryInputOfTheCorpusIsHandled) {
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_CORPUS)) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
    for (int eighths = 0; eighths <= 8; ++eighths) {
      // A copy of its own, so that reading past the end is seen.
      const std::string part = bytes.substr(0, bytes.size() * eighths / 8);
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(part.data()), part.size());
    }
    ++inputs;
  }
  EXPECT_GT(inputs, 0);
}

}  // namespace
}  // namespace weft
