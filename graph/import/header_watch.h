// HeaderWatch tells which inputs begin with the names of their columns, by this sign: the names on
// line 1 are not numbers and occur on no other line (but the first lines of other inputs).
//
// Thread-safety: none. Blocks come in order.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/dataset_manifest.h"
#include "graph/import/edge_parser.h"
#include "graph/import/interner.h"

namespace weft {

class HeaderWatch {
 public:
  // Watches only where a header can get through: a weight column and static relations refuse it.
  HeaderWatch(const DatasetSchema& schema, const LineFormat& format);

  // Before the block is interned.
  void Look(const EdgeBlock& block, const Interner& interned);

  // The inputs whose line 1 looks like a header, so far.
  std::vector<int> Suspects() const;

 private:
  struct Candidate {
    uint64_t lhs;
    uint64_t rhs;
    uint64_t rel;
    std::vector<int> inputs;
  };

  bool IsCandidate(const EdgeBlock& block) const;
  void LookAtFirstLine(const EdgeBlock& block, const Interner& interned);

  const DatasetSchema& schema_;
  const bool enabled_;
  std::vector<Candidate> candidates_;
  std::vector<int64_t> num_edges_;  // by input, up to 2
};

}  // namespace weft
