// The names of the data model: entities, relations, partitions, buckets, passes, versions.
//
// An entity is (entity type, partition, offset). A relation type fixes the entity types of its two
// sides. A bucket is the set of edges between one left-hand and one right-hand partition.
#pragma once

#include <compare>
#include <cstdint>
#include <utility>

namespace weft {

using EntityTypeId = int32_t;  // index into RunConfig::entities
using RelationTypeId =
    int32_t;  // static: index into RunConfig::relations; dynamic: row of the names
using PartitionId = int32_t;
using EntityOffset = int32_t;  // row within a partition; a partition holds fewer than 2^31 entities

enum class Side : uint8_t { kLhs = 0, kRhs = 1 };

inline constexpr Side kSides[] = {Side::kLhs, Side::kRhs};
constexpr Side Opposite(Side side) { return side == Side::kLhs ? Side::kRhs : Side::kLhs; }

struct Bucket {
  PartitionId lhs = 0;
  PartitionId rhs = 0;

  constexpr PartitionId partition(Side side) const { return side == Side::kLhs ? lhs : rhs; }
  auto operator<=>(const Bucket&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const Bucket& b) {
    return H::combine(std::move(h), b.lhs, b.rhs);
  }
};

struct PartitionKey {
  EntityTypeId entity_type = 0;
  PartitionId partition = 0;

  auto operator<=>(const PartitionKey&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const PartitionKey& k) {
    return H::combine(std::move(h), k.entity_type, k.partition);
  }
};

using Token = uint64_t;  // term x 2^40 + n, never reused; 0 names the initial content
inline constexpr Token kInitialToken = 0;

// An immutable version of a partition, named by the token of the grant that made it.
struct PartitionVersion {
  PartitionKey key;
  Token token = kInitialToken;

  auto operator<=>(const PartitionVersion&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const PartitionVersion& v) {
    return H::combine(std::move(h), v.key, v.token);
  }
};

// One sweep over all buckets for one (epoch, edge path, edge chunk).
struct PassPosition {
  int64_t pass = 0;  // counts from 0 over the whole run
  int epoch = 0;
  int edge_path = 0;
  int edge_chunk = 0;
  int num_edge_chunks = 1;

  auto operator<=>(const PassPosition&) const = default;
};

}  // namespace weft
