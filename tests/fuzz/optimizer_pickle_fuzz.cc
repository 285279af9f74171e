// Bytes as a torch.save archive of an optimizer's state: whatever they are, an answer, and sums of
// no more bytes than there are.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/checkpoint/optimizer_pickle.h"
#include "services/common/check.h"

namespace {

class MemorySource : public weft::RandomAccessSource {
 public:
  MemorySource(const uint8_t* data, size_t size) : bytes_(data, size) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  absl::Status Read(int64_t begin, std::span<char> out) const override {
    WEFT_CHECK(begin >= 0 && static_cast<size_t>(begin) + out.size() <= bytes_.size());
    std::ranges::copy(bytes_.subspan(static_cast<size_t>(begin), out.size()), out.begin());
    return absl::OkStatus();
  }

 private:
  const std::span<const uint8_t> bytes_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemorySource source(data, size);
  const auto reader = weft::OptimizerStateReader::Open(&source);
  if (!reader.ok()) {
    WEFT_CHECK(!reader.status().message().empty());
    return 0;
  }
  for (size_t i = 0; i < reader->parameters().size(); ++i) {
    int64_t floats = 1;
    for (const int64_t extent : reader->parameters()[i].shape) floats *= extent;
    WEFT_CHECK(floats >= 0 && static_cast<size_t>(floats) <= size / sizeof(float));
    std::vector<float> sum(static_cast<size_t>(floats));
    (void)reader->ReadSum(i, sum);
  }
  return 0;
}
