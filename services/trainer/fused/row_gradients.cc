#include "services/trainer/fused/row_gradients.h"

#include <algorithm>
#include <bit>

#include "services/common/check.h"
#include "services/trainer/kernels/vector_ops.h"

namespace weft {

void RowGradients::Begin(const BatchTables& tables, int64_t num_slots, bool dense_lhs,
                         bool dense_rhs) {
  tables_ = tables;
  shared_ = tables.lhs.embeddings == tables.rhs.embeddings;
  num_rows_ = 0;
  dense_[0] = dense_[1] = -1;
  for (std::vector<RowStep>& rows : rows_) rows.clear();
  row_of_.resize(static_cast<size_t>(num_slots));
  uses_.clear();
  uses_.reserve(static_cast<size_t>(num_slots));
  const size_t buckets = std::bit_ceil(static_cast<size_t>(std::max<int64_t>(num_slots, 8)) * 2);
  hash_shift_ = 32 - std::countr_zero(buckets);
  hash_.assign(buckets, Entry{0, -1});

  auto place_dense = [this](Side side, const EmbeddingTable& table) {
    WEFT_CHECK(num_rows_ + table.count < (int64_t{1} << 31));
    dense_[Index(side)] = num_rows_;
    for (int32_t i = 0; i < table.count; ++i) rows_[TableIndex(side)].push_back({i, num_rows_++});
    uses_.resize(static_cast<size_t>(num_rows_));
  };
  if (shared_) {
    if (dense_lhs || dense_rhs) place_dense(Side::kLhs, tables.lhs);
    dense_[1] = dense_[0];
  } else {
    if (dense_lhs) place_dense(Side::kLhs, tables.lhs);
    if (dense_rhs) place_dense(Side::kRhs, tables.rhs);
  }
}

void RowGradients::Assign(Side side, int64_t first, std::span<const EntityOffset> offsets) {
  int32_t* row_of = row_of_.data() + first;
  if (const int64_t dense = dense_[Index(side)]; dense >= 0) {
    for (const EntityOffset offset : offsets) *row_of++ = static_cast<int32_t>(dense) + offset;
    return;
  }
  const int table = TableIndex(side);
  const size_t mask = hash_.size() - 1;
  const uint32_t tag = static_cast<uint32_t>(table) << 31;
  std::vector<RowStep>& rows = rows_[table];
  for (const EntityOffset offset : offsets) {
    const uint32_t key = static_cast<uint32_t>(offset) | tag;
    size_t at = (key * 0x9E3779B1u) >> hash_shift_;
    while (hash_[at].row >= 0 && hash_[at].key != key) at = (at + 1) & mask;
    Entry& entry = hash_[at];
    if (entry.row < 0) {
      entry = {key, num_rows_};
      rows.push_back({offset, num_rows_++});
      uses_.push_back({.offset = offset});
    }
    uses_[entry.row].last_slot = static_cast<int32_t>(row_of - row_of_.data());
    *row_of++ = entry.row;
  }
}

void RowGradients::AllocateRows(int64_t max_product, Arena* arena) {
  grads_ = arena->Rows(num_rows_, tables_.lhs.dimension);
  spare_ = arena->Rows(max_product, tables_.lhs.dimension);
  places_.assign(static_cast<size_t>(num_rows_), -1);
  num_places_ = 0;
  free_.clear();
  seen_in_.assign(static_cast<size_t>(num_rows_), 0);
  product_ = 0;
  targets_.resize(static_cast<size_t>(max_product));
  fresh_.resize(static_cast<size_t>(max_product));
  duplicates_.clear();
  finite_ = true;
}

void RowGradients::SetTarget(size_t i, int32_t row) {
  int32_t& place = places_[row];
  fresh_[i] = place < 0;
  if (place < 0) {
    place = free_.empty() ? num_places_++ : free_.back();
    if (!free_.empty()) free_.pop_back();
  }
  targets_[i] = grads_.row(place);
}

void RowGradients::MakeRoom(int64_t num_targets) {
  if (static_cast<int64_t>(targets_.size()) >= num_targets) return;
  targets_.resize(static_cast<size_t>(num_targets));
  fresh_.resize(static_cast<size_t>(num_targets));
}

void RowGradients::AddTo(const int32_t* rows, const RowBlock& block) {
  MakeRoom(block.rows);
  for (int64_t i = 0; i < block.rows; ++i) SetTarget(static_cast<size_t>(i), rows[i]);
  if (!AddRowsTo(block, targets_.data(), fresh_.data())) finite_ = false;
}

void RowGradients::Add(int64_t first, const RowBlock& block) {
  AddTo(row_of_.data() + first, block);
}

ScatteredRows RowGradients::DenseTargets(Side side, int64_t first, int64_t count) {
  MakeRoom(count);
  for (int64_t i = 0; i < count; ++i) {
    SetTarget(static_cast<size_t>(i), static_cast<int32_t>(dense_[Index(side)] + first + i));
  }
  return {.rows = targets_.data(), .fresh = fresh_.data(), .finite = &finite_};
}

void RowGradients::AddDense(Side side, int64_t first, const RowBlock& block) {
  const ScatteredRows targets = DenseTargets(side, first, block.rows);
  if (!AddRowsTo(block, targets.rows, targets.fresh)) finite_ = false;
}

ScatteredRows RowGradients::BeginProduct(SlotRange a, SlotRange b) {
  ++product_;
  duplicates_.clear();
  size_t i = 0;
  for (const SlotRange range : {a, b}) {
    for (int64_t slot = range.first; slot < range.first + range.count; ++slot, ++i) {
      const int32_t row = row_of_[slot];
      if (seen_in_[row] == product_) {
        targets_[i] = spare_.row(static_cast<int64_t>(duplicates_.size()));
        fresh_[i] = 1;
        duplicates_.push_back(row);
        continue;
      }
      seen_in_[row] = product_;
      SetTarget(i, row);
    }
  }
  return {.rows = targets_.data(), .fresh = fresh_.data(), .finite = &finite_};
}

void RowGradients::EndProduct() {
  const auto count = static_cast<int64_t>(duplicates_.size());
  if (count > 0) AddTo(duplicates_.data(), spare_.Slice(0, count));
}

RowGradients::Row RowGradients::FindNotFinite() const {
  for (const Side side : kSides) {
    if (shared_ && side == Side::kRhs) break;
    for (const RowStep& row : rows(side)) {
      if (places_[row.slot] >= 0 && !AllFinite(gradient(row), grads_.dim)) {
        return {side, row.offset};
      }
    }
  }
  return {};
}

void RowGradients::AddColumnSums(Side side, float* sums) const {
  for (const RowStep& row : rows(side)) {
    if (places_[row.slot] >= 0) AddFloats(gradient(row), grads_.dim, sums);
  }
}

void RowGradients::Step(float lr) {
  for (const Side side : kSides) {
    const EmbeddingTable& table = side == Side::kLhs ? tables_.lhs : tables_.rhs;
    if ((shared_ && side == Side::kRhs) || table.adagrad_sums == nullptr) continue;
    done_.clear();
    for (const RowStep& row : rows(side)) {
      if (places_[row.slot] >= 0) done_.push_back({row.offset, places_[row.slot]});
    }
    AdagradRows(table, done_, grads_, lr);
  }
}

void RowGradients::StepDone(Side side, SlotRange a, SlotRange b, float lr, float* column_sums) {
  if (!finite_) return;
  const EmbeddingTable& table = side == Side::kLhs ? tables_.lhs : tables_.rhs;
  const bool steps = table.adagrad_sums != nullptr;
  done_.clear();
  for (const SlotRange range : {a, b}) {
    for (int64_t slot = range.first; slot < range.first + range.count; ++slot) {
      const int32_t row = row_of_[slot];
      const Use use = uses_[row];
      if (use.last_slot != slot) continue;
      // Nothing has asked for the sums yet.
      if (steps) __builtin_prefetch(table.adagrad_sums + use.offset, 1);
      done_.push_back({use.offset, places_[row]});
    }
  }
  if (column_sums != nullptr) {
    for (const RowStep& step : done_) AddFloats(grads_.row(step.slot), grads_.dim, column_sums);
  }
  if (!steps) return;
  AdagradRows(table, done_, grads_, lr);
  for (const RowStep& step : done_) free_.push_back(step.slot);
}

BatchGradients::Rows RowGradients::Export(Side side) const {
  BatchGradients::Rows out;
  if (shared_ && side == Side::kRhs) return out;
  std::vector<RowStep> rows = rows_[TableIndex(side)];
  std::ranges::sort(rows, {}, &RowStep::offset);
  for (const RowStep& row : rows) {
    out.offsets.push_back(row.offset);
    const float* g = gradient(row);
    out.values.insert(out.values.end(), g, g + grads_.dim);
  }
  return out;
}

}  // namespace weft
