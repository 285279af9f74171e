// The seed of a randomized test: WEFT_TEST_SEED, so that a run can be had again.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>

namespace weft::testing {

// `otherwise`: the seed when none is given.
inline uint64_t TestSeed(const std::function<uint64_t()>& otherwise) {
  const char* const given = std::getenv("WEFT_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise();
}
inline uint64_t TestSeed(uint64_t otherwise) {
  return TestSeed([otherwise] { return otherwise; });
}

}  // namespace weft::testing
