// RowGradients collects the gradients of a batch's table rows and makes the optimizer's step on
// them, once for each distinct row.
//
// Every use of a row in the batch (a positive, a negative) has a slot; the passes write a slot's
// gradient straight into it. Slots of the same row are added together as their chunk is finished,
// into the row's first slot, so that a row used once costs nothing extra.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/embedding_partition.h"
#include "services/common/float_block.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/fused/arena.h"
#include "services/trainer/kernels/row_block.h"
#include "services/trainer/kernels/row_ops.h"

namespace weft {

// Not thread-safe: one a worker.
class RowGradients {
 public:
  // Starts a batch over two tables (the same one twice when both sides share it) of one dimension.
  // `num_slots` slots will be assigned; slots of `dense` sides (those that have all entities as
  // negatives) follow them, one for each row of the table.
  void Begin(const BatchTables& tables, int64_t num_slots, bool dense_lhs, bool dense_rhs,
             Arena* arena);

  // Gives slots first, first + 1, ... to the rows `offsets` of `side`. All slots are assigned
  // before the first FinishSlots.
  void Assign(Side side, int64_t first, std::span<const EntityOffset> offsets);

  bool shared_table() const { return shared_; }
  // The slots of a dense side's rows 0, 1, ...
  int64_t dense_slot(Side side) const { return dense_[Index(side)]; }
  int64_t num_slots() const { return grads_.rows; }
  RowBlock Slots(int64_t first, int64_t count) const { return grads_.Slice(first, count); }

  // Takes the gradients of these slots as final: clears their padding, adds their sum to
  // `column_sums` (nullptr: not wanted), and adds them to their rows' first slots. Dense slots must
  // be finished before others.
  void FinishSlots(int64_t first, int64_t count, float* column_sums);

  // After all slots are finished: the first slot of which the gradient is not finite, or -1.
  int64_t FindNotFinite();

  // The distinct rows of a table, each with the slot that has its gradient, in order of first use.
  std::span<const RowStep> rows(Side side) const { return rows_[TableIndex(side)]; }

  // Row-wise Adagrad on all rows. After FindNotFinite.
  void Step(float lr);

  // All distinct rows of the side's table in ascending order; empty for the rhs of a shared table.
  BatchGradients::Rows Export(Side side) const;

 private:
  struct Entry {
    uint32_t key;
    int32_t slot;  // < 0: empty
  };

  static int Index(Side side) { return static_cast<int>(side); }
  int TableIndex(Side side) const { return shared_ ? 0 : Index(side); }

  BatchTables tables_;
  bool shared_ = false;
  int64_t dense_[2] = {-1, -1};  // by side
  RowBlock grads_;
  float* squares_ = nullptr;       // [slots]; of the gradient in the slot
  std::vector<int32_t> first_;     // [slots]; the slot that collects this slot's row
  std::vector<uint8_t> collects_;  // [slots]; whether others were added to it
  std::vector<RowStep> rows_[2];   // by table
  std::vector<Entry> hash_;        // open addressing, by (table, offset)
  int hash_shift_ = 0;
};

}  // namespace weft
