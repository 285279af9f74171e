#include "graph/import/utf8.h"

#include <cstdint>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace weft {
namespace {

// Length of the sequence that begins at `at` (1 to 4), 0 when it is not valid.
size_t SequenceLength(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : uint8_t{0};
  };
  const auto follows = [&](size_t i, uint8_t low = 0x80, uint8_t high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const uint8_t low = first == 0xE0 ? 0xA0 : 0x80;   // shorter forms exist below
    const uint8_t high = first == 0xED ? 0x9F : 0xBF;  // surrogates above
    return follows(1, low, high) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const uint8_t low = first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xF4 ? 0x8F : 0xBF;  // U+10FFFF is the last
    return follows(1, low, high) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

size_t FindInvalidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = SequenceLength(text, at);
    if (length == 0) return at;
    at += length;
  }
  return kWholeText;
}

bool IsAsciiWithoutNul(std::string_view text) {
  size_t i = 0;
#ifdef __SSE2__
  const __m128i zero = _mm_setzero_si128();
  for (; i + 16 <= text.size(); i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + i));
    // Signed: above zero are just the bytes 1..127.
    if (_mm_movemask_epi8(_mm_cmpgt_epi8(bytes, zero)) != 0xFFFF) return false;
  }
#endif
  for (; i < text.size(); ++i) {
    if (static_cast<signed char>(text[i]) <= 0) return false;
  }
  return true;
}

}  // namespace weft
