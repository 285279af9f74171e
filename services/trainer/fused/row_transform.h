// RowTransform makes rows of an entity table ready for scoring, and TileScorer scores rows that are
// ready: what evaluation, `weft score` and `weft neighbors` share with training.
//
// A relation ranks one side of an edge: the entity that is given is the query, the entities of the
// side to be found are the candidates. Both become ready by: max_norm, the entity type's global
// embedding, the relation's operator where it applies (static relations: to the right-hand side,
// whatever its role; dynamic: to the query, with the parameters of its own side), and the
// comparator's preparation (cos: the coordinates after the bias divided by their 2-norm).
// For dynamic relations, ready candidates are the same for every relation.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/parameter_set.h"
#include "services/common/types.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

enum class RowRole { kQuery, kCandidate };

// Thread-safety: constant after Make; Apply may be called from any thread.
class RowTransform {
 public:
  // For rows of the entities on `side` of `relation`. Copies what it needs of `parameters`.
  // Errors:
  //   InvalidArgument: an operator or comparator that is not built in, or no such relation.
  //   FailedPrecondition: `parameters` lacks one that the model has, or has it in another shape.
  static absl::StatusOr<RowTransform> Make(const ModelSpec& spec, const ParameterSet& parameters,
                                           RelationTypeId relation, Side side, RowRole role);

  RowTransform(RowTransform&&) noexcept;
  RowTransform& operator=(RowTransform&&) noexcept;
  ~RowTransform();

  int64_t dimension() const;

  // in, out: [rows, dimension], strides in floats, >= dimension. The same pointer for both
  // transforms in place. The result of a row depends on that row alone, to the bit.
  void Apply(int64_t rows, const float* in, int64_t in_stride, float* out,
             int64_t out_stride) const;

 private:
  struct Impl;
  explicit RowTransform(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

// Scores of ready rows, by the model's comparator and bias, in tiles of one fixed, zero-padded
// size. The score of a query and a candidate is a function of these two rows alone: bit-equal
// wherever they stand in a tile, however many rows the tile has, and on every thread (of the same
// class of CPU), so that equal scores are ties. Higher is better; l2 of equal rows is -1e-15,
// squared_l2 0.
//
// Thread-safety: none; one TileScorer a thread.
class TileScorer {
 public:
  static constexpr int64_t kQueries = 64;
  static constexpr int64_t kCandidates = 768;

  // Errors: InvalidArgument for a comparator that is not built in.
  static absl::StatusOr<TileScorer> Make(const ModelSpec& spec, int64_t dimension);

  TileScorer(TileScorer&&) noexcept;
  TileScorer& operator=(TileScorer&&) noexcept;
  ~TileScorer();

  // Copies `count` <= kCandidates ready rows, [count, dimension], as the candidates of the
  // following calls of Score.
  void SetCandidates(int64_t count, const float* rows, int64_t stride);

  // queries: [count <= kQueries, dimension], ready. scores: [kQueries, kCandidates], row-major,
  // stride kCandidates; what lies beyond `count` rows or the candidates' count is unspecified.
  void Score(int64_t count, const float* queries, int64_t stride, float* scores);

 private:
  struct Impl;
  explicit TileScorer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
