#include "services/param_server/shared_layout.h"

#include <xxhash.h>

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

bool IsConsistent(const SharedTensor& t) {
  if (t.cols < 1 || t.cols > kMaxRowFloats || t.rows < 1 || t.rows > INT32_MAX) return false;
  return t.size > (t.rows - 1) * t.cols && t.size <= t.rows * t.cols;
}

}  // namespace

SharedTensor MakeSharedTensor(std::string name, int64_t rows, int64_t cols) {
  if (cols <= kMaxRowFloats) return {std::move(name), rows, cols, rows * cols};
  const int64_t size = rows * cols;
  return {std::move(name), (size + kMaxRowFloats - 1) / kMaxRowFloats, kMaxRowFloats, size};
}

SharedLayout::SharedLayout(std::vector<SharedTensor> tensors) : tensors_(std::move(tensors)) {
  std::string text;
  for (const SharedTensor& t : tensors_) {
    absl::StrAppend(&text, t.name, "\n", t.rows, " ", t.cols, " ", t.size, "\n");
  }
  hash_ = XXH3_64bits(text.data(), text.size());
}

absl::StatusOr<SharedLayout> SharedLayout::Make(std::vector<SharedTensor> tensors) {
  absl::flat_hash_set<std::string> names;
  for (const SharedTensor& t : tensors) {
    if (t.name.empty() || !names.insert(t.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("shared tensor '", t.name, "' occurs twice"));
    }
    if (!IsConsistent(t)) {
      return absl::InvalidArgumentError(absl::StrCat("shared tensor ", t.name, " of ", t.size,
                                                     " floats cannot be ", t.rows, " x ", t.cols));
    }
  }
  return SharedLayout(std::move(tensors));
}

SharedLayout SharedLayout::Of(const SharedState& state) {
  std::vector<TableShape> tables;
  for (const EmbeddingPartition& table : state.unpartitioned) {
    tables.push_back({table.count(), table.dimension()});
  }
  return Of(state.parameters, tables);
}

SharedLayout SharedLayout::Of(const ParameterSet& parameters,
                              const std::vector<TableShape>& tables) {
  std::vector<SharedTensor> tensors;
  auto add = [&](const std::string& name, int64_t rows, int64_t cols, int64_t sum_cols) {
    tensors.push_back(MakeSharedTensor(name, rows, cols));
    tensors.push_back(MakeSharedTensor(absl::StrCat(name, "/sums"), rows, sum_cols));
  };
  for (const Parameter& p : parameters.all()) {
    add(p.name, p.values.rows(), p.values.cols(), p.adagrad_sums.cols());
  }
  for (size_t type = 0; type < tables.size(); ++type) {
    if (tables[type].count == 0) continue;
    add(TableName(static_cast<EntityTypeId>(type)), tables[type].count, tables[type].dimension, 1);
  }
  return SharedLayout(std::move(tensors));
}

std::string SharedLayout::TableName(EntityTypeId type) { return absl::StrCat("tables/", type); }

std::vector<LiveGroup> LiveGroups(SharedState* state) {
  // Nobody marks rows here; never written.
  static ChangedRows not_tracked;
  std::vector<LiveGroup> groups;
  auto add = [&](FloatBlock& values, FloatBlock& sums, ChangedRows* changed) {
    groups.push_back(
        {{values.data(), sums.data()}, values.rows(), {values.cols(), sums.cols()}, changed});
  };
  for (Parameter& p : state->parameters.all()) add(p.values, p.adagrad_sums, &p.changed);
  for (size_t type = 0; type < state->unpartitioned.size(); ++type) {
    EmbeddingPartition& table = state->unpartitioned[type];
    if (table.count() == 0) continue;
    add(table.embeddings, table.adagrad_sums,
        type < state->unpartitioned_changed.size() ? &state->unpartitioned_changed[type]
                                                   : &not_tracked);
  }
  return groups;
}

}  // namespace weft
