// BatchGraph is the autograd graph of one batch: from the rows of tables and parameters, through
// operator and comparator, to scores, loss and regularization. The steps of services/trainer/
// batch_step.h, one function each.
//
// Functions throw c10::Error; their caller turns it into a Status.
// Includes ATen: for services/trainer/nn alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/nn/gathered_rows.h"
#include "services/trainer/nn/reference_model.h"

namespace weft::nn {

class BatchGraph {
 public:
  // All references must outlive the graph. Gathers (and limits norms in the tables).
  BatchGraph(const ReferenceModel& model, const EdgeBatch& batch, const SampledNegatives& negatives,
             const BatchTables& tables, at::ScalarType precision);

  // Scores, loss and regularization.
  // Errors: OutOfRange when a score is not finite.
  absl::Status Forward();
  // After Forward. Errors: OutOfRange when a gradient is not finite.
  absl::Status Backward();
  // After Backward: the optimizers' step on tables and parameters.
  void Step() const;

  BatchStats stats() const;
  BatchScores scores() const;
  BatchGradients gradients() const;

 private:
  // The corruption of one side: every edge keeps its entity on the other side.
  struct Direction {
    at::Tensor pos;  // [n]
    at::Tensor neg;  // [n, num_neg]
  };
  struct GatheredParameter {
    Parameter* parameter;
    GatheredRows rows;
  };

  // Of the rows that were gathered.
  void MarkTables() const;
  GatheredRows& RowsOf(Side side) { return side == Side::kRhs && rhs_ ? *rhs_ : *lhs_; }
  const GatheredRows& ParameterRows(Parameter* parameter, std::span<const int32_t> rows);
  std::span<const EntityOffset> Offsets(Side side) const;
  std::span<const EntityOffset> Samples(Side side) const;
  EntityTypeId EntityType(Side side) const;

  // Of the operator of `side`: [shape...] each, for dynamic relations [n, shape...].
  Tensors OperatorParameters(Side side);
  at::Tensor AddGlobalEmbedding(const at::Tensor& x, Side side);
  at::Tensor ApplyOperator(const at::Tensor& x, Side side);
  at::Tensor Prepare(const at::Tensor& x) const;
  at::Tensor Score(const at::Tensor& a, const at::Tensor& b) const;

  // Rows of `side`, ready to be compared.
  at::Tensor Ready(const at::Tensor& rows, Side side, bool with_operator);
  // The entities of the edges.
  at::Tensor Positives(Side side, bool with_operator);
  // Gathered vectors of `side`, ready to be compared.
  at::Tensor Vectors(std::span<const EntityOffset> offsets, Side side, bool with_operator);
  // own, fixed: [n, d], the positives of the corrupted side and of the other one.
  Direction Corrupt(Side side, const at::Tensor& own, const at::Tensor& fixed, bool with_operator);
  at::Tensor Chunked(const at::Tensor& x) const;  // [n, ...] -> [c, chunk size, ...], zero-padded
  at::Tensor PairsToIgnore(Side side, int64_t num_neg) const;  // bool [c, chunk size, num_neg]

  // coef * sum of cubed moduli. `side` says whose operator.
  at::Tensor Regularization(const at::Tensor& a, const at::Tensor& b, Side side, int64_t times);
  at::Tensor LossOf(const Direction& direction) const;
  absl::Status CheckScores(const Direction& direction, Side side) const;
  std::string RelationName(int64_t edge) const;

  const ReferenceModel& model_;
  const EdgeBatch& batch_;
  const SampledNegatives& negatives_;
  const BatchTables& tables_;
  const at::ScalarType precision_;
  const RelationTypeId relation_;  // static: of all edges; dynamic: 0
  const RelationSpec& relation_spec_;
  const int64_t num_edges_;
  const int64_t chunk_size_;
  const int64_t num_chunks_;

  std::unique_ptr<GatheredRows> lhs_;
  std::unique_ptr<GatheredRows> rhs_;  // null when both sides share a table
  std::map<const Parameter*, GatheredParameter> parameters_;
  Direction directions_[2];  // by corrupted Side
  at::Tensor loss_;
  at::Tensor reg_;
};

}  // namespace weft::nn
