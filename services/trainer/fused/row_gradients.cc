#include "services/trainer/fused/row_gradients.h"

#include <algorithm>
#include <bit>

#include "services/common/check.h"
#include "services/trainer/kernels/vector_ops.h"

namespace weft {

void RowGradients::Begin(const BatchTables& tables, int64_t num_slots, bool dense_lhs,
                         bool dense_rhs, Arena* arena) {
  tables_ = tables;
  shared_ = tables.lhs.embeddings == tables.rhs.embeddings;
  int64_t total = num_slots;
  auto place_dense = [&](Side side, const EmbeddingTable& table) {
    dense_[Index(side)] = total;
    total += table.count;
  };
  dense_[0] = dense_[1] = -1;
  if (dense_lhs) place_dense(Side::kLhs, tables.lhs);
  if (dense_rhs) {
    if (shared_ && dense_lhs) {
      dense_[1] = dense_[0];
    } else {
      place_dense(Side::kRhs, tables.rhs);
    }
  }
  if (shared_) dense_[0] = dense_[1] = std::max(dense_[0], dense_[1]);
  WEFT_CHECK(total < (int64_t{1} << 31));

  grads_ = arena->Rows(total, tables.lhs.dimension);
  squares_ = arena->Floats(total);
  if (static_cast<int64_t>(first_.size()) < total) {
    first_.resize(static_cast<size_t>(total));
    collects_.resize(static_cast<size_t>(total));
  }
  std::fill_n(collects_.begin(), total, uint8_t{0});
  for (std::vector<RowStep>& rows : rows_) rows.clear();
  const size_t buckets = std::bit_ceil(static_cast<size_t>(std::max<int64_t>(num_slots, 8)) * 2);
  hash_shift_ = 32 - std::countr_zero(buckets);
  hash_.assign(buckets, Entry{0, -1});

  for (const Side side : kSides) {
    if (dense_[Index(side)] < 0 || (side == Side::kRhs && shared_)) continue;
    const EmbeddingTable& table = side == Side::kLhs ? tables.lhs : tables.rhs;
    const auto base = static_cast<int32_t>(dense_[Index(side)]);
    for (int32_t i = 0; i < table.count; ++i) {
      first_[static_cast<size_t>(base + i)] = base + i;
      rows_[TableIndex(side)].push_back({i, base + i});
    }
  }
}

void RowGradients::Assign(Side side, int64_t first, std::span<const EntityOffset> offsets) {
  const int table = TableIndex(side);
  auto slot = static_cast<int32_t>(first);
  if (const int64_t dense = dense_[Index(side)]; dense >= 0) {
    for (const EntityOffset offset : offsets) {
      first_[static_cast<size_t>(slot++)] = static_cast<int32_t>(dense) + offset;
    }
    return;
  }
  const size_t mask = hash_.size() - 1;
  const uint32_t tag = static_cast<uint32_t>(table) << 31;
  std::vector<RowStep>& rows = rows_[table];
  for (const EntityOffset offset : offsets) {
    const uint32_t key = static_cast<uint32_t>(offset) | tag;
    size_t at = (key * 0x9E3779B1u) >> hash_shift_;
    while (hash_[at].slot >= 0 && hash_[at].key != key) at = (at + 1) & mask;
    Entry& entry = hash_[at];
    if (entry.slot < 0) {
      entry = {key, slot};
      rows.push_back({offset, slot});
    }
    first_[static_cast<size_t>(slot)] = entry.slot;
    ++slot;
  }
}

void RowGradients::FinishSlots(int64_t first, int64_t count, float* column_sums) {
  const RowBlock slots = Slots(first, count);
  ClearPadding(slots);
  SumSquares(slots, squares_ + first, column_sums);
  for (int64_t slot = first; slot < first + count; ++slot) {
    const int64_t to = first_[static_cast<size_t>(slot)];
    if (to == slot) continue;
    AddScaledRow(grads_.row(slot), 1.0f, grads_.dim, 0, grads_.row(to));
    collects_[static_cast<size_t>(to)] = 1;
  }
}

int64_t RowGradients::FindNotFinite() {
  for (const std::vector<RowStep>& rows : rows_) {
    for (const RowStep& row : rows) {
      if (collects_[static_cast<size_t>(row.slot)] == 0) continue;
      SumSquares(Slots(row.slot, 1), squares_ + row.slot);
    }
  }
  if (AllFinite(squares_, grads_.rows)) return -1;
  int64_t slot = 0;
  while (AllFinite(squares_ + slot, 1)) ++slot;
  return slot;
}

void RowGradients::Step(float lr) {
  AdagradRows(tables_.lhs, rows_[0], grads_, squares_, lr);
  if (!shared_) AdagradRows(tables_.rhs, rows_[1], grads_, squares_, lr);
}

BatchGradients::Rows RowGradients::Export(Side side) const {
  BatchGradients::Rows out;
  if (shared_ && side == Side::kRhs) return out;
  std::vector<RowStep> rows = rows_[TableIndex(side)];
  std::ranges::sort(rows, {}, &RowStep::offset);
  for (const RowStep& row : rows) {
    out.offsets.push_back(row.offset);
    const float* g = grads_.row(row.slot);
    out.values.insert(out.values.end(), g, g + grads_.dim);
  }
  return out;
}

}  // namespace weft
