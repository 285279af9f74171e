// Counter-based random numbers: a stream is a function of its key, never of the thread that draws.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC11).
// Two equal keys give equal streams on every machine; different keys are independent.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace weft {

// What a stream is for. Part of its key, so that no two uses share numbers.
enum class RandomUse : uint32_t {
  kInitialEmbedding = 1,
  kEdgeOrder = 2,
  kNegatives = 3,
  kHeldOutEdges = 4,
  kBucketOrder = 5,
  kBatchRelation = 6,
  kEvalCandidates = 7,
  kTest = 8,
  kRetry = 9,
};

inline std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// A stream of random numbers. Satisfies UniformRandomBitGenerator. Not thread-safe; cheap to make.
class RandomStream {
 public:
  using result_type = uint32_t;

  // The stream of (seed, use, a, b): at most 2^34 numbers, then it repeats.
  RandomStream(uint64_t seed, RandomUse use, uint64_t a = 0, uint64_t b = 0) {
    // Fold the key into Philox's 64-bit key and the upper 64 bits of its counter.
    const auto mixed = Philox({static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32),
                               static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)},
                              {static_cast<uint32_t>(seed) ^ (static_cast<uint32_t>(use) << 24),
                               static_cast<uint32_t>(seed >> 32) + static_cast<uint32_t>(use)});
    key_ = {mixed[0], mixed[1]};
    counter_ = {0, 0, mixed[2], mixed[3]};
  }

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }

  result_type operator()() {
    if (left_ == 0) {
      block_ = Philox(counter_, key_);
      if (++counter_[0] == 0) ++counter_[1];
      left_ = 4;
    }
    return block_[--left_];
  }

  // Uniform in [0, bound), bound >= 1; the bias is below bound / 2^32.
  uint32_t Below(uint32_t bound) {
    return static_cast<uint32_t>((uint64_t{(*this)()} * bound) >> 32);
  }
  uint64_t Below64(uint64_t bound) {
    const uint64_t high = (*this)();
    const uint64_t bits = (high << 32) | (*this)();
    return static_cast<uint64_t>((static_cast<Uint128>(bits) * bound) >> 64);
  }
  // Uniform in [0, 1), 24 bits.
  float Uniform() { return static_cast<float>((*this)() >> 8) * 0x1.0p-24f; }
  // Standard normal, by Box and Muller.
  float Normal() {
    const double u = (static_cast<double>((*this)()) + 1.0) * 0x1.0p-32;  // (0, 1]
    const double v = static_cast<double>((*this)()) * 0x1.0p-32;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
  }

 private:
  __extension__ using Uint128 = unsigned __int128;

  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int left_ = 0;
};

}  // namespace weft
