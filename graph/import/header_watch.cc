#include "graph/import/header_watch.h"

#include <algorithm>
#include <string_view>

namespace weft {
namespace {

std::string_view FieldAt(const EdgeBlock& block, EdgeField field, size_t i) {
  return block.lines.fields[static_cast<int>(field)][i];
}

bool IsNumber(std::string_view text) {
  return text.find_first_not_of("0123456789.+-") == std::string_view::npos;
}

}  // namespace

HeaderWatch::HeaderWatch(const DatasetSchema& schema, const LineFormat& format)
    : schema_(schema),
      enabled_(
          format.column(EdgeField::kWeight) == LineFormat::kNoColumn && !schema.featurized() &&
          (format.column(EdgeField::kRel) == LineFormat::kNoColumn || schema.dynamic_relations)) {}

bool HeaderWatch::IsCandidate(const EdgeBlock& block) const {
  return block.lhs_hash[0] != block.rhs_hash[0] && !IsNumber(FieldAt(block, EdgeField::kLhs, 0)) &&
         !IsNumber(FieldAt(block, EdgeField::kRhs, 0));
}

void HeaderWatch::LookAtFirstLine(const EdgeBlock& block, const Interner& interned) {
  const uint64_t lhs = block.lhs_hash[0];
  const uint64_t rhs = block.rhs_hash[0];
  const uint64_t rel = block.rel_hash.empty() ? 0 : block.rel_hash[0];
  for (Candidate& candidate : candidates_) {
    if (candidate.lhs == lhs && candidate.rhs == rhs && candidate.rel == rel) {
      candidate.inputs.push_back(block.input);
      return;
    }
  }
  if (!IsCandidate(block)) return;
  const DatasetSchema::Relation& relation = schema_.relations[block.relation(0)];
  const bool known =
      interned.entities()[relation.lhs].Find(lhs, FieldAt(block, EdgeField::kLhs, 0)) >= 0 ||
      interned.entities()[relation.rhs].Find(rhs, FieldAt(block, EdgeField::kRhs, 0)) >= 0 ||
      (!block.rel_hash.empty() &&
       interned.relations().Find(rel, FieldAt(block, EdgeField::kRel, 0)) >= 0);
  if (!known) candidates_.push_back({lhs, rhs, rel, {block.input}});
}

void HeaderWatch::Look(const EdgeBlock& block, const Interner& interned) {
  if (!enabled_ || block.size() == 0) return;
  num_edges_.resize(std::max(num_edges_.size(), static_cast<size_t>(block.input) + 1));
  num_edges_[block.input] =
      std::min<int64_t>(2, num_edges_[block.input] + static_cast<int64_t>(block.size()));
  const bool first_line = block.first && block.lines.line[0] == 0;
  if (first_line) LookAtFirstLine(block, interned);
  if (candidates_.empty()) return;
  const ptrdiff_t begin = first_line ? 1 : 0;
  const auto occurs = [&](const std::vector<uint64_t>& hashes, uint64_t hash) {
    return !hashes.empty() && std::find(hashes.begin() + begin, hashes.end(), hash) != hashes.end();
  };
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return occurs(block.lhs_hash, candidate.lhs) || occurs(block.rhs_hash, candidate.rhs) ||
           occurs(block.lhs_hash, candidate.rhs) || occurs(block.rhs_hash, candidate.lhs) ||
           occurs(block.rel_hash, candidate.rel);
  });
}

std::vector<int> HeaderWatch::Suspects() const {
  std::vector<int> suspects;
  for (const Candidate& candidate : candidates_) {
    for (const int input : candidate.inputs) {
      if (num_edges_[input] > 1) suspects.push_back(input);
    }
  }
  std::sort(suspects.begin(), suspects.end());
  return suspects;
}

}  // namespace weft
