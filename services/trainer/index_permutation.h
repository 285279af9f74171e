// IndexPermutation is a pseudo-random permutation of [0, n) that is computed where it is asked for.
//
// Shuffling edges by it needs no table of n indices and no serial pass before training: workers
// look up the edges of their own batches. It is a bijection of the w-bit numbers, w = bit width of
// n - 1, made of invertible steps (xor, odd multiplication, xor-shift), walked until it falls below
// n again (Black and Rogaway: "Ciphers with arbitrary finite domains", CT-RSA 2002): less than two
// steps on average.
//
// Thread-safety: constant after construction.
#pragma once

#include <bit>
#include <cstdint>

#include "services/common/random.h"

namespace weft {

class IndexPermutation {
 public:
  // The permutation of [0, n) chosen by `random`; n >= 1.
  IndexPermutation(uint64_t n, RandomStream random) : n_(n) {
    const int width = n > 1 ? std::bit_width(n - 1) : 0;
    mask_ = width == 0 ? 0 : ~uint64_t{0} >> (64 - width);
    shift_ = (width + 1) / 2;
    for (Round& round : rounds_) {
      round.addend = (uint64_t{random()} << 32) | random();
      round.factor = ((uint64_t{random()} << 32) | random()) | 1;
    }
  }

  uint64_t size() const { return n_; }

  // Where index i < n goes.
  uint64_t operator()(uint64_t i) const {
    do {
      for (const Round& round : rounds_) {
        i = ((i ^ round.addend) * round.factor) & mask_;
        i ^= i >> shift_;
      }
    } while (i >= n_);
    return i;
  }

 private:
  struct Round {
    uint64_t addend = 0;
    uint64_t factor = 1;
  };

  uint64_t n_;
  uint64_t mask_;
  int shift_;
  Round rounds_[4];
};

}  // namespace weft
