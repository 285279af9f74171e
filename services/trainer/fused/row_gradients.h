// RowGradients collects the gradients of a batch's table rows and makes the optimizer's step on
// them, once for each distinct row.
//
// Every use of a row in the batch (a positive, a negative) has a slot; slots of the same row share
// one gradient row, to which the passes add, either from a block or straight from a matrix product.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/embedding_partition.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/fused/arena.h"
#include "services/trainer/kernels/block_gemm.h"
#include "services/trainer/kernels/row_block.h"
#include "services/trainer/kernels/row_ops.h"

namespace weft {

// Consecutive slots.
struct SlotRange {
  int64_t first = 0;
  int64_t count = 0;
};

// Not thread-safe: one a worker.
class RowGradients {
 public:
  // Starts a batch over two tables (the same one twice when both sides share it) of one dimension.
  // All rows of a `dense` side's table (one that has all entities as negatives) take part.
  void Begin(const BatchTables& tables, int64_t num_slots, bool dense_lhs, bool dense_rhs);
  // Gives slots first, first + 1, ... to the rows `offsets` of `side`. All slots are assigned
  // before AllocateRows, and that comes before any gradient.
  void Assign(Side side, int64_t first, std::span<const EntityOffset> offsets);
  // Space for the gradients of all rows, and for products of up to `max_product` slots.
  void AllocateRows(int64_t max_product, Arena* arena);

  bool shared_table() const { return shared_; }
  int64_t dimension() const { return tables_.lhs.dimension; }

  // Adds the rows of `block` to the gradients of slots first, first + 1, ...
  void Add(int64_t first, const RowBlock& block);
  // The targets of a product whose result is to be added to the gradients of rows first,
  // first + 1, ... of a dense side's table. Valid until the next call of any kind.
  ScatteredRows DenseTargets(Side side, int64_t first, int64_t count);
  // Adds the rows of `block` to the same.
  void AddDense(Side side, int64_t first, const RowBlock& block);
  // The targets of a product whose result is to be added to the gradients of `a` and then `b`.
  // Valid until EndProduct, which comes after the product.
  ScatteredRows BeginProduct(SlotRange a, SlotRange b = {});
  void EndProduct();

  // Whether everything that was added is finite; if not, FindNotFinite tells a row that is not.
  bool finite() const { return finite_; }
  struct Row {
    Side side = Side::kLhs;
    EntityOffset offset = 0;
  };
  Row FindNotFinite() const;

  // The distinct rows of a table in order of first use; a step's `slot` is the row's number here.
  std::span<const RowStep> rows(Side side) const { return rows_[TableIndex(side)]; }
  // The gradient of one of these rows, unless StepDone has done with it.
  const float* gradient(const RowStep& row) const { return grads_.row(places_[row.slot]); }
  // Adds up the gradients of all rows of a table (of both sides, if they share it).
  void AddColumnSums(Side side, float* sums) const;

  // Row-wise Adagrad on all rows of tables that have sums (pooled ones have none: feature_pool.h).
  void Step(float lr);
  // The same for the rows that no slot assigned after `a` and `b` has, once their gradients are
  // added; these are added up, too, unless `column_sums` is null. Then other rows' gradients may
  // take their places, so that few places are in use, in the nearer caches. Does nothing once a
  // gradient was not finite. Not with dense sides.
  void StepDone(Side side, SlotRange a, SlotRange b, float lr, float* column_sums);

  // All distinct rows of the side's table in ascending order; empty for the rhs of a shared table.
  BatchGradients::Rows Export(Side side) const;

 private:
  struct Entry {
    uint32_t key;
    int32_t row;  // < 0: empty
  };

  // Of a row: where it is in its table, and the last of its slots.
  struct Use {
    EntityOffset offset = 0;
    int32_t last_slot = 0;
  };

  static int Index(Side side) { return static_cast<int>(side); }
  int TableIndex(Side side) const { return shared_ ? 0 : Index(side); }
  void AddTo(const int32_t* rows, const RowBlock& block);
  void MakeRoom(int64_t num_targets);
  // Makes row `row` the i-th target.
  void SetTarget(size_t i, int32_t row);

  BatchTables tables_;
  bool shared_ = false;
  int64_t dense_[2] = {-1, -1};  // by side: the row of entity 0, if the side is dense
  int32_t num_rows_ = 0;
  std::vector<int32_t> row_of_;   // by slot
  std::vector<RowStep> rows_[2];  // by table
  std::vector<Use> uses_;         // [rows]; empty ones of dense sides
  std::vector<RowStep> done_;     // of StepDone
  std::vector<Entry> hash_;       // open addressing, by (table, offset)
  int hash_shift_ = 0;

  RowBlock grads_;               // [places], as many as rows
  std::vector<int32_t> places_;  // [rows]; of the gradients; -1: nothing was added yet
  int32_t num_places_ = 0;       // used at least once
  std::vector<int32_t> free_;    // of these, those that are free again
  bool finite_ = true;

  // The product in work. A row that occurs in it twice gets a spare row for the second time.
  RowBlock spare_;
  std::vector<float*> targets_;
  std::vector<uint8_t> fresh_;
  std::vector<uint32_t> seen_in_;  // [rows]; number of the last product that had the row
  uint32_t product_ = 0;
  std::vector<int32_t> duplicates_;  // rows to which spare row 0, 1, ... is to be added
};

}  // namespace weft
