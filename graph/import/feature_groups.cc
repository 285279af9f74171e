#include "graph/import/feature_groups.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

namespace weft {

FeatureGroups::FeatureGroups(size_t num_features) : parent_(num_features) {
  std::iota(parent_.begin(), parent_.end(), 0u);
}

uint32_t FeatureGroups::GroupOf(uint32_t feature) {
  while (parent_[feature] != feature) {
    // Halves the path, so that the next search is shorter.
    parent_[feature] = parent_[parent_[feature]];
    feature = parent_[feature];
  }
  return feature;
}

void FeatureGroups::Join(std::span<const EntityOffset> features) {
  if (features.empty()) return;
  uint32_t group = GroupOf(static_cast<uint32_t>(features[0]));
  for (const EntityOffset feature : features.subspan(1)) {
    const uint32_t other = GroupOf(static_cast<uint32_t>(feature));
    // The least feature of a group is its root.
    parent_[std::max(group, other)] = std::min(group, other);
    group = std::min(group, other);
  }
}

FeatureGroups::Placement FeatureGroups::Place(std::span<const uint32_t> features,
                                              std::span<const std::string_view> names,
                                              int num_partitions) {
  struct Group {
    int64_t size = 0;
    uint32_t first = 0;  // the feature with the first name
    PartitionId partition = 0;
  };
  std::vector<Group> groups;
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> number(parent_.size(), kNone);  // of the group, by its root
  for (const uint32_t feature : features) {
    const uint32_t root = GroupOf(feature);
    if (number[root] == kNone) {
      number[root] = static_cast<uint32_t>(groups.size());
      groups.push_back({.first = feature});
    }
    Group& group = groups[number[root]];
    ++group.size;
    if (names[feature] < names[group.first]) group.first = feature;
  }

  std::vector<uint32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    if (groups[a].size != groups[b].size) return groups[a].size > groups[b].size;
    return names[groups[a].first] < names[groups[b].first];
  });
  Placement placement;
  using Filled = std::pair<int64_t, PartitionId>;
  std::priority_queue<Filled, std::vector<Filled>, std::greater<>> partitions;  // emptiest first
  for (PartitionId p = 0; p < num_partitions; ++p) partitions.emplace(0, p);
  for (const uint32_t g : order) {
    auto [size, partition] = partitions.top();
    partitions.pop();
    groups[g].partition = partition;
    size += groups[g].size;
    partitions.emplace(size, partition);
    placement.largest_group = std::max(placement.largest_group, groups[g].size);
    placement.largest_partition = std::max(placement.largest_partition, size);
  }
  placement.partitions.resize(parent_.size());
  for (const uint32_t feature : features) {
    placement.partitions[feature] = groups[number[GroupOf(feature)]].partition;
  }
  return placement;
}

}  // namespace weft
