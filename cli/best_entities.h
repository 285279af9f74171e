// The entities of one type that score best against a vector, of all its partitions.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/checkpoint_loader.h"
#include "services/common/types.h"
#include "services/trainer/entity_index.h"
#include "services/trainer/fused/row_transform.h"

namespace weft::cli {

struct ScoredEntity {
  EntityPosition position;
  float score = 0;
};

// Makes [rows, dimension] vectors ready for scoring, in place.
using PrepareRows = std::function<void(int64_t rows, float* vectors)>;

// The best `count` entities of `type`, best first; equal scores in the order of positions. `query`
// is a ready row; `prepare` makes the stored ones ready; `except` is left out.
// Reads the tables piece by piece. Errors: as Checkpoint::VisitEmbeddings.
absl::StatusOr<std::vector<ScoredEntity>> BestEntities(const Checkpoint& checkpoint,
                                                       EntityTypeId type,
                                                       std::span<const float> query,
                                                       const PrepareRows& prepare,
                                                       TileScorer& scorer, int count,
                                                       std::optional<EntityPosition> except);

}  // namespace weft::cli
