// EntityNames finds the entities of one type of a checkpoint by name, and names of entities.
//
// The names of a partition are read when they are first needed, and kept.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cli/checkpoint_loader.h"
#include "services/common/types.h"
#include "services/trainer/entity_index.h"

namespace weft::cli {

class EntityNames {
 public:
  // `checkpoint` must outlive this object.
  EntityNames(const Checkpoint& checkpoint, EntityTypeId type);

  const EntityConfig& type() const;

  // Nothing when there is no entity of that name. Errors: as Checkpoint::EntityNames.
  absl::StatusOr<std::optional<EntityPosition>> Find(const std::string& name);
  absl::StatusOr<std::string> NameOf(EntityPosition position);

 private:
  friend absl::StatusOr<std::vector<std::string>> ClosestNames(absl::Span<EntityNames> types,
                                                               const std::string& name, int count);
  absl::StatusOr<const std::vector<std::string>*> OfPartition(PartitionId partition);

  const Checkpoint& checkpoint_;
  const EntityTypeId type_;
  std::vector<std::optional<std::vector<std::string>>> partitions_;
};

// At most `count` names that somebody who wrote `name` may have meant, the likeliest first: names
// that begin with it, names that hold it, names with few letters different.
absl::StatusOr<std::vector<std::string>> ClosestNames(absl::Span<EntityNames> types,
                                                      const std::string& name, int count);

// "; the closest are: a, b", or nothing when there are none.
std::string ClosestText(const std::vector<std::string>& closest);

// Find, or NotFound with the closest names. What a featurized type has are features.
absl::StatusOr<EntityPosition> FindEntity(EntityNames& names, const std::string& name);

}  // namespace weft::cli
