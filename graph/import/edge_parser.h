// EdgeParser makes edges of the lines of a block: relations looked up, weights read, names hashed.
// What is left for the importer, which takes the blocks in order, is to give out entity ids.
//
// Thread-safety: none (it keeps buffers for hashing); one a thread. The dictionary of relations is
// only read and may be shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/dataset_manifest.h"
#include "graph/entity_dictionary.h"
#include "graph/import/line_parser.h"
#include "graph/import/line_reader.h"
#include "graph/stable_partition.h"
#include "services/common/types.h"

namespace weft {

// The edges of one block of lines. Index i is the same edge in every vector and in the lines'.
struct EdgeBlock {
  LineBlock block;
  ParsedLines lines;
  std::vector<RelationTypeId> rel;  // static relations; empty: relation 0
  std::vector<uint64_t> rel_hash;   // dynamic relations
  std::vector<uint64_t> lhs_hash;
  std::vector<uint64_t> rhs_hash;
  std::vector<float> weight;      // empty without a weight column
  int64_t unknown_relations = 0;  // lines that are not edges for that
  int input = 0;                  // which input, counted from 0
  bool first = false;             // of its input

  size_t size() const { return lines.size(); }
  RelationTypeId relation(size_t i) const { return rel.empty() ? 0 : rel[i]; }
};

// The names of the configured relations, by HashBytes.
EntityDictionary RelationDictionary(const DatasetSchema& schema);

class EdgeParser {
 public:
  struct Options {
    LineFormat format;
    bool skip_header = false;
    bool skip_unknown_relations = false;
  };

  // `schema` and `relations` (of its static relations) must outlive this object.
  EdgeParser(const Options& options, const DatasetSchema& schema,
             const EntityDictionary& relations);

  // Fills the rest of `edges` from edges->block.
  void Parse(EdgeBlock* edges);

 private:
  bool ResolveLine(size_t i, EdgeBlock* edges) const;
  void ResolveLines(EdgeBlock* edges) const;
  void HashNames(EdgeBlock* edges);

  const Options options_;
  const DatasetSchema& schema_;
  const EntityDictionary& relations_;
  const LineParser line_parser_;
  const bool has_relations_;
  const bool has_weights_;
  std::vector<EntityHasher> hashers_;  // by entity type
};

// Reads a weight: a finite decimal number >= 0, rounded once to the nearest float32.
// Returns why it cannot be used ("is not a number"), or nullptr.
const char* ParseWeight(std::string_view text, float* weight);

}  // namespace weft
