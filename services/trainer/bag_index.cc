#include "services/trainer/bag_index.h"

#include <algorithm>
#include <cmath>

namespace weft {

int64_t BagIndex::Number(PartitionKey features, std::span<const EntityOffset> bag, bool add) {
  Type& of_type = types_[static_cast<size_t>(features.entity_type)];
  // An entity without features is the same one everywhere.
  std::pair key(bag.empty() ? 0 : features.partition,
                std::vector<EntityOffset>(bag.begin(), bag.end()));
  std::ranges::sort(key.second);
  const auto found = of_type.numbers.find(key);
  if (found != of_type.numbers.end()) return found->second;
  if (!add) return kUnknown;
  const int64_t number = of_type.bags.size();
  of_type.bags.Append(key.second);
  of_type.partitions.push_back(key.first);
  of_type.numbers.emplace(std::move(key), number);
  return number;
}

void MeanOfFeatures(const FloatBlock& features, std::span<const EntityOffset> bag, float max_norm,
                    std::span<float> mean) {
  std::ranges::fill(mean, 0.0f);
  for (const EntityOffset feature : bag) {
    const std::span<const float> row = features.row(feature);
    float share = 1.0f / static_cast<float>(bag.size());
    if (max_norm > 0) {
      double square = 0;
      for (const float x : row) square += double{x} * double{x};
      const auto norm = static_cast<float>(std::sqrt(square));
      if (norm > max_norm) share *= max_norm / (norm + 1e-7f);
    }
    for (size_t k = 0; k < mean.size(); ++k) mean[k] += share * row[k];
  }
}

}  // namespace weft
