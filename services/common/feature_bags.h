// FeatureBags are the features of entities of a featurized type: one list (bag) for each entity.
//
// The rows of a featurized type's table are its features. An entity has no row of its own: its
// vector is the mean of its features' rows, each as often as the bag has it, and zero when the bag
// is empty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/types.h"

namespace weft {

struct FeatureBags {
  std::vector<int64_t> offsets;        // [bags + 1], ascending from 0; empty: there are no bags
  std::vector<EntityOffset> features;  // of bag i: offsets[i] up to offsets[i + 1]

  bool empty() const { return offsets.empty(); }
  int64_t size() const { return empty() ? 0 : static_cast<int64_t>(offsets.size()) - 1; }
  int64_t bytes() const {
    return static_cast<int64_t>(offsets.size() * sizeof(int64_t) +
                                features.size() * sizeof(EntityOffset));
  }

  std::span<const EntityOffset> operator[](int64_t i) const {
    const auto bag = static_cast<size_t>(i);
    return std::span(features).subspan(static_cast<size_t>(offsets[bag]),
                                       static_cast<size_t>(offsets[bag + 1] - offsets[bag]));
  }

  // `bag` is not of this object.
  void Append(std::span<const EntityOffset> bag) {
    if (offsets.empty()) offsets.push_back(0);
    features.insert(features.end(), bag.begin(), bag.end());
    offsets.push_back(static_cast<int64_t>(features.size()));
  }

  void Clear() {
    offsets.clear();
    features.clear();
  }

  bool operator==(const FeatureBags&) const = default;
};

}  // namespace weft
