#include "services/common/nearest_key.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

constexpr size_t kComparedBytes = 128;
constexpr size_t kListedCandidates = 8;

// Of the beginnings of both words.
int Distance(absl::string_view a, absl::string_view b) {
  return EditDistance(a.substr(0, kComparedBytes), b.substr(0, kComparedBytes));
}

}  // namespace

int EditDistance(absl::string_view a, absl::string_view b) {
  // Three rows of the matrix: distances of a's prefixes of i-2, i-1 and i bytes to all of b's.
  std::vector<int> two_before(b.size() + 1), before(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) before[j] = static_cast<int>(j);
  const auto same = [](char x, char y) { return absl::ascii_tolower(x) == absl::ascii_tolower(y); };
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = before[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
      current[j] = std::min({before[j] + 1, current[j - 1] + 1, substituted});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        current[j] = std::min(current[j], two_before[j - 2] + 1);
      }
    }
    two_before.swap(before);
    before.swap(current);
  }
  return before[b.size()];
}

int NearestIndex(absl::string_view word, absl::Span<const std::string> candidates) {
  int nearest = -1;
  int least = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const int distance = Distance(word, candidates[i]);
    if (nearest < 0 || distance < least) {
      nearest = static_cast<int>(i);
      least = distance;
    }
  }
  return nearest;
}

std::string DidYouMean(absl::string_view word, absl::Span<const std::string> candidates) {
  const int nearest = NearestIndex(word, candidates);
  if (nearest < 0) return "";
  const std::string& name = candidates[nearest];
  const size_t shorter = std::min(word.size(), name.size());
  const int near_enough = std::max<int>(1, static_cast<int>(shorter) / 3);
  if (Distance(word, name) > near_enough) return "";
  return absl::StrCat("; did you mean \"", name, "\"?");
}

std::string Suggestion(absl::string_view word, absl::Span<const std::string> candidates) {
  if (candidates.empty()) return "";
  if (std::string meant = DidYouMean(word, candidates); !meant.empty()) return meant;
  if (candidates.size() <= kListedCandidates) {
    return absl::StrCat("; valid: ", absl::StrJoin(candidates, ", "));
  }
  return absl::StrCat("; the nearest is \"", candidates[NearestIndex(word, candidates)], "\"");
}

}  // namespace weft
