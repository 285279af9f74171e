// BitSet is a fixed-size set of small integers, one bit each, made for "which of these rows and
// columns are free": intersections go by words of 64. Not thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

class BitSet {
 public:
  explicit BitSet(int size) : size_(size), words_((static_cast<size_t>(size) + 63) / 64) {}

  int size() const { return size_; }
  bool Contains(int i) const { return (words_[Word(i)] >> (i % 64)) & 1; }
  void Insert(int i) { words_[Word(i)] |= Bit(i); }
  void Erase(int i) { words_[Word(i)] &= ~Bit(i); }
  void Set(int i, bool member) { member ? Insert(i) : Erase(i); }

  void Invert() {
    for (uint64_t& word : words_) word = ~word;
    if (size_ % 64 != 0) words_.back() &= Bit(size_) - 1;
  }

  void Intersect(const BitSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] &= other.words_[w];
  }

  void Subtract(const BitSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] &= ~other.words_[w];
  }

  static BitSet Both(BitSet a, const BitSet& b) {
    a.Intersect(b);
    return a;
  }

  int Count() const {
    int count = 0;
    for (const uint64_t word : words_) count += std::popcount(word);
    return count;
  }

  // Calls visit(i) for each member of both sets, ascending.
  template <typename Visit>
  static void ForEachInBoth(const BitSet& a, const BitSet& b, const Visit& visit) {
    for (size_t w = 0; w < a.words_.size(); ++w) {
      for (uint64_t both = a.words_[w] & b.words_[w]; both != 0; both &= both - 1) {
        visit(static_cast<int>(w * 64) + std::countr_zero(both));
      }
    }
  }
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    ForEachInBoth(*this, *this, visit);
  }

 private:
  static size_t Word(int i) { return static_cast<size_t>(i) / 64; }
  static uint64_t Bit(int i) { return uint64_t{1} << (i % 64); }

  int size_;
  std::vector<uint64_t> words_;
};

}  // namespace weft
