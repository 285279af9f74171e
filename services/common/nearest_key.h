// The word of a list that somebody who mistyped it most likely meant.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

// Optimal string alignment distance: the least number of single-byte insertions, deletions,
// substitutions and swaps of two neighbours that turn `a` into `b`, capital letters counting as
// small ones. O(|a| |b|) time.
int EditDistance(absl::string_view a, absl::string_view b);

// The index of the candidate nearest to `word` (the first among equals); -1 without candidates.
// Only the first 128 bytes of each word are compared.
int NearestIndex(absl::string_view word, absl::Span<const std::string> candidates);

// `; did you mean "lr"?` when a candidate is near enough to be meant, else empty.
std::string DidYouMean(absl::string_view word, absl::Span<const std::string> candidates);

// What to append to "unknown NAME": DidYouMean, else a list of the candidates when they are few,
// else
// `; the nearest is "lr"`. Empty without candidates.
std::string Suggestion(absl::string_view word, absl::Span<const std::string> candidates);

}  // namespace weft
