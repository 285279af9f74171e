#include "services/trainer/fused/feature_pool.h"

#include "services/trainer/kernels/row_ops.h"
#include "services/trainer/kernels/vector_ops.h"

namespace weft {

void FeaturePool::Pool(float max_norm, Arena* arena, EdgeBatch* batch, BatchTables* tables) {
  int64_t num_slots = 0;
  for (const Side side : kSides) {
    const int s = Index(side);
    bags_[s] = batch->bags(side);
    if (bags_[s] == nullptr) continue;
    ids_[s] = batch->ids(side);
    first_slot_[s] = num_slots;
    for (const EntityOffset bag : ids_[s]) {
      num_slots += static_cast<int64_t>((*bags_[s])[bag].size());
    }
  }
  if (!any()) return;

  features_.Begin(*tables, num_slots, /*dense_lhs=*/false, /*dense_rhs=*/false);
  for (const Side side : kSides) {
    if (!pooled(side)) continue;
    int64_t slot = first_slot_[Index(side)];
    for (const EntityOffset id : ids_[Index(side)]) {
      const std::span<const EntityOffset> bag = (*bags_[Index(side)])[id];
      features_.Assign(side, slot, bag);
      slot += static_cast<int64_t>(bag.size());
    }
  }
  for (const Side side : kSides) {
    if (max_norm <= 0 || (side == Side::kRhs && features_.shared_table())) continue;
    limited_.clear();
    for (const RowStep& row : features_.rows(side)) limited_.push_back(row.offset);
    LimitRowNorms(side == Side::kLhs ? tables->lhs : tables->rhs, limited_, max_norm);
  }

  const int64_t n = batch->size();
  while (static_cast<int64_t>(numbers_.size()) < n) {
    numbers_.push_back(static_cast<EntityOffset>(numbers_.size()));
  }
  for (const Side side : kSides) {
    if (!pooled(side)) continue;
    EmbeddingTable& table = side == Side::kLhs ? tables->lhs : tables->rhs;
    EmbeddingTable rows = {.count = n, .dimension = table.dimension};
    rows.embeddings = arena->Floats(n * table.dimension);
    MeanRows(table, *bags_[Index(side)], ids_[Index(side)], rows.embeddings);
    table = rows;
    (side == Side::kLhs ? batch->lhs : batch->rhs) =
        std::span(numbers_).first(static_cast<size_t>(n));
  }
}

void FeaturePool::Backward(const RowGradients& rows, Arena* arena) {
  features_.AllocateRows(/*max_product=*/0, arena);
  for (const Side side : kSides) {
    if (!pooled(side)) continue;
    // The pooled row i is that of edge i.
    slots_.clear();
    int64_t slot = first_slot_[Index(side)];
    for (const EntityOffset id : ids_[Index(side)]) {
      slots_.push_back(slot);
      slot += static_cast<int64_t>((*bags_[Index(side)])[id].size());
    }
    slots_.push_back(slot);
    RowBlock share = arena->Rows(1, rows.dimension());
    for (const RowStep& row : rows.rows(side)) {
      const int64_t first = slots_[static_cast<size_t>(row.offset)];
      const int64_t count = slots_[static_cast<size_t>(row.offset) + 1] - first;
      if (count == 0) continue;
      ZeroRows(share);
      AddScaledRow(rows.gradient(row), 1.0f / static_cast<float>(count), share.dim, 0, share.data);
      // The same row for every feature.
      features_.Add(first, {share.data, count, share.dim, /*stride=*/0});
    }
  }
}

}  // namespace weft
