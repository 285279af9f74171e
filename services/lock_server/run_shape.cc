#include "services/lock_server/run_shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

template <typename Value>
void Compare(std::string_view what, const Value& was, const Value& now,
             std::vector<std::string>* changes) {
  if (was != now) {
    changes->push_back(absl::StrCat(std::string(what), ": was ", was, ", is ", now));
  }
}

template <typename Item>
std::string Names(const std::vector<Item>& items) {
  return absl::StrCat(
      "[",
      absl::StrJoin(items, ", ",
                    [](std::string* out, const Item& item) { out->append(item.name); }),
      "]");
}

void CompareType(const RunShape::EntityType& was, const RunShape::EntityType& now,
                 std::vector<std::string>* changes) {
  const std::string key = absl::StrCat("entities.", now.name);
  Compare(absl::StrCat(key, ": dimension"), was.dimension, now.dimension, changes);
  Compare(absl::StrCat(key, ".num_partitions"), was.num_partitions, now.num_partitions, changes);
  const size_t partitions = std::min(was.counts.size(), now.counts.size());
  if (was.num_partitions != now.num_partitions) return;
  for (size_t i = 0; i < partitions; ++i) {
    Compare(absl::StrCat(key, ": entities in partition ", i), was.counts[i], now.counts[i],
            changes);
  }
}

void CompareRelation(size_t index, const RunShape::Relation& was, const RunShape::Relation& now,
                     std::vector<std::string>* changes) {
  const std::string key = absl::StrCat("relations[", index, "].");
  Compare(absl::StrCat(key, "name"), was.name, now.name, changes);
  Compare(absl::StrCat(key, "lhs"), was.lhs, now.lhs, changes);
  Compare(absl::StrCat(key, "rhs"), was.rhs, now.rhs, changes);
  Compare(absl::StrCat(key, "operator"), was.operator_name, now.operator_name, changes);
}

}  // namespace

std::vector<std::string> DescribeChanges(const RunShape& was, const RunShape& now) {
  std::vector<std::string> changes;
  const std::string types = Names(was.entity_types);
  if (types != Names(now.entity_types)) {
    Compare("entities", types, Names(now.entity_types), &changes);
  } else {
    for (size_t i = 0; i < now.entity_types.size(); ++i) {
      CompareType(was.entity_types[i], now.entity_types[i], &changes);
    }
  }
  if (was.relations.size() != now.relations.size()) {
    Compare("number of relations", was.relations.size(), now.relations.size(), &changes);
  } else {
    for (size_t i = 0; i < now.relations.size(); ++i) {
      CompareRelation(i, was.relations[i], now.relations[i], &changes);
    }
  }
  const auto yes = [](bool value) { return value ? "true" : "false"; };
  Compare("dynamic_relations", std::string(yes(was.dynamic_relations)),
          std::string(yes(now.dynamic_relations)), &changes);
  if (was.num_dynamic_relations > 0 && now.num_dynamic_relations > 0) {
    Compare("number of dynamic relations", was.num_dynamic_relations, now.num_dynamic_relations,
            &changes);
  }
  Compare("global_emb", std::string(yes(was.global_embeddings)),
          std::string(yes(now.global_embeddings)), &changes);
  if (changes.empty() && was.entities_digest != 0 && now.entities_digest != 0 &&
      was.entities_digest != now.entities_digest) {
    changes.push_back("entities: imported anew, with other names or in another order");
  }
  return changes;
}

}  // namespace weft
