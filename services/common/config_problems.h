// ConfigProblems collects what is wrong with a configuration, so that all of it is told at once.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

struct ConfigProblem {
  std::string key;  // "relations[1].lhs"; empty for the text as a whole
  std::string message;
  int line = 0;  // as JsonNode::line
};

class ConfigProblems {
 public:
  void Add(std::string key, std::string message, int line = 0);

  bool empty() const { return list_.empty(); }
  // Further problems are dropped: a hostile text of many megabytes can hold one every few bytes.
  bool full() const { return list_.size() >= kMaxProblems; }
  // Whether the value of `key` is in doubt: a problem names it or an object or list it lies in.
  // What follows from such a value need not be told. When full, every value is in doubt.
  bool Concern(absl::string_view key) const;

  const std::vector<ConfigProblem>& list() const { return list_; }
  std::vector<ConfigProblem>& list() { return list_; }

  // InvalidArgument with every problem on a line of its own, in the order of the text:
  // "run.json:7: lr: must be >= 0, is -1". Ok when there are none.
  absl::Status ToStatus(absl::string_view origin, absl::Span<const std::string> overrides) const;

 private:
  static constexpr size_t kMaxProblems = 1000;

  std::vector<ConfigProblem> list_;
  absl::flat_hash_set<std::string> keys_;
};

// The key of a member or an element: "entities" + "user" -> "entities.user"; a name that such a
// path cannot hold is quoted: entities["a.b"].
std::string MemberKey(absl::string_view object, absl::string_view name);
std::string ElementKey(absl::string_view list, size_t index);

}  // namespace weft
