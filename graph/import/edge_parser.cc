#include "graph/import/edge_parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr int kLhs = static_cast<int>(EdgeField::kLhs);
constexpr int kRhs = static_cast<int>(EdgeField::kRhs);
constexpr int kRel = static_cast<int>(EdgeField::kRel);
constexpr int kWeight = static_cast<int>(EdgeField::kWeight);

std::string Quoted(std::string_view text) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape(std::string(text.substr(0, 200))), "\"");
}

}  // namespace

EntityDictionary RelationDictionary(const DatasetSchema& schema) {
  EntityDictionary relations(1);
  for (const DatasetSchema::Relation& relation : schema.relations) {
    relations.Intern(HashBytes(relation.name), relation.name);
  }
  return relations;
}

const char* ParseWeight(std::string_view text, float* weight) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  float value = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return "is not a number";
  if (result.ec == std::errc::result_out_of_range) return "does not fit a 32-bit float";
  if (!std::isfinite(value)) return "is not finite";
  if (value < 0) return "is negative";
  *weight = value + 0.0f;  // of the two zeros, the positive one
  return nullptr;
}

EdgeParser::EdgeParser(const Options& options, const DatasetSchema& schema,
                       const EntityDictionary& relations)
    : options_(options),
      schema_(schema),
      relations_(relations),
      line_parser_(options.format),
      has_relations_(options.format.column(EdgeField::kRel) != LineFormat::kNoColumn),
      has_weights_(options.format.column(EdgeField::kWeight) != LineFormat::kNoColumn) {
  for (const DatasetSchema::EntityType& type : schema.entities) hashers_.emplace_back(type.name);
}

void EdgeParser::Parse(EdgeBlock* edges) {
  edges->rel.clear();
  edges->rel_hash.clear();
  edges->weight.clear();
  edges->unknown_relations = 0;
  line_parser_.Parse(edges->block, options_.skip_header && edges->first, &edges->lines);
  ResolveLines(edges);
  HashNames(edges);
}

// Looks up the relation and reads the weight of line `i`, and adds them to `edges`; false, and
// nothing added, when the line cannot be used.
bool EdgeParser::ResolveLine(size_t i, EdgeBlock* edges) const {
  ParsedLines& lines = edges->lines;
  const auto refuse = [&](std::string reason) {
    lines.bad.push_back({lines.line[i], std::move(reason),
                         LineParser::LineAt(edges->block, lines.begin[i]), /*maybe_header=*/true});
    return false;
  };
  float weight = 0;
  if (has_weights_) {
    const std::string_view text = lines.fields[kWeight][i];
    const char* const problem = ParseWeight(text, &weight);
    if (problem != nullptr) return refuse(absl::StrCat("weight ", Quoted(text), " ", problem));
  }
  if (has_relations_) {
    const std::string_view name = lines.fields[kRel][i];
    const uint64_t hash = HashBytes(name);
    if (schema_.dynamic_relations) {
      edges->rel_hash.push_back(hash);
    } else {
      const RelationTypeId relation = relations_.Find(hash, name);
      if (relation == EntityDictionary::kNone) {
        ++edges->unknown_relations;
        if (options_.skip_unknown_relations) return false;
        return refuse(absl::StrCat(
            "relation ", Quoted(name),
            " is not in the configuration (--skip-unknown-relations skips such lines)"));
      }
      edges->rel.push_back(relation);
    }
  }
  if (has_weights_) edges->weight.push_back(weight);
  return true;
}

void EdgeParser::ResolveLines(EdgeBlock* edges) const {
  if (!has_relations_ && !has_weights_) return;
  ParsedLines& lines = edges->lines;
  const size_t num_bad = lines.bad.size();
  const size_t size = lines.size();
  size_t kept = 0;
  for (size_t i = 0; i < size; ++i) {
    if (!ResolveLine(i, edges)) continue;
    if (kept != i) lines.Move(i, kept);
    ++kept;
  }
  lines.Truncate(kept);
  std::inplace_merge(lines.bad.begin(), lines.bad.begin() + static_cast<ptrdiff_t>(num_bad),
                     lines.bad.end(),
                     [](const BadLine& a, const BadLine& b) { return a.line < b.line; });
}

void EdgeParser::HashNames(EdgeBlock* edges) {
  const size_t size = edges->size();
  edges->lhs_hash.resize(size);
  edges->rhs_hash.resize(size);
  for (size_t i = 0; i < size; ++i) {
    const DatasetSchema::Relation& relation = schema_.relations[edges->relation(i)];
    edges->lhs_hash[i] = hashers_[relation.lhs](edges->lines.fields[kLhs][i]);
    edges->rhs_hash[i] = hashers_[relation.rhs](edges->lines.fields[kRhs][i]);
  }
}

}  // namespace weft
