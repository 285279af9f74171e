#include "services/trainer/nn/batch_graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/changed_rows.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft::nn {
namespace {

constexpr double kIgnoredScore = -1e9;

std::vector<EntityOffset> AllOffsets(int64_t count) {
  std::vector<EntityOffset> offsets(count);
  std::iota(offsets.begin(), offsets.end(), 0);
  return offsets;
}

FloatTable TableOf(const EmbeddingTable& t) { return {t.embeddings, t.count, t.dimension}; }

FloatTable TableOf(Parameter& p) { return {p.values.data(), p.values.rows(), p.values.cols()}; }

std::vector<float> ToFloats(const at::Tensor& x) {
  const at::Tensor floats = x.detach().to(at::kFloat).contiguous();
  const float* data = floats.data_ptr<float>();
  return std::vector<float>(data, data + floats.numel());
}

bool AllFinite(const at::Tensor& x) { return x.detach().isfinite().all().item<bool>(); }

void MarkRows(uint8_t* changed, const GatheredRows& rows) {
  if (changed == nullptr) return;
  for (const EntityOffset offset : rows.offsets()) MarkChanged(changed, offset);
}

// Index of the first row that is not finite; x: [n, ...].
int64_t FirstNonFinite(const at::Tensor& x) {
  const at::Tensor finite = x.detach().isfinite().reshape({x.size(0), -1}).all(1);
  return finite.logical_not().nonzero()[0][0].item<int64_t>();
}

}  // namespace

BatchGraph::BatchGraph(const ReferenceModel& model, const EdgeBatch& batch,
                       const SampledNegatives& negatives, const BatchTables& tables,
                       at::ScalarType precision)
    : model_(model),
      batch_(batch),
      negatives_(negatives),
      tables_(tables),
      precision_(precision),
      relation_(model.spec.dynamic() ? 0 : batch.rel[0]),
      relation_spec_(model.spec.relations[relation_]),
      num_edges_(batch.size()),
      chunk_size_(model.spec.NegativeChunkSize(relation_, num_edges_)),
      num_chunks_((num_edges_ + chunk_size_ - 1) / chunk_size_) {
  std::vector<EntityOffset> offsets[2];
  for (const Side side : kSides) {
    std::vector<EntityOffset>& of_side = offsets[static_cast<int>(side)];
    if (model.spec.negatives(relation_, side) == NegativeKind::kAll) {
      of_side = AllOffsets((side == Side::kLhs ? tables.lhs : tables.rhs).count);
    } else {
      const auto samples = Samples(side);
      of_side.assign(samples.begin(), samples.end());
    }
    const auto positives = Offsets(side);
    if (const FeatureBags* bags = batch.bags(side)) {
      for (const EntityOffset id : positives) {
        const std::span<const EntityOffset> features = (*bags)[id];
        of_side.insert(of_side.end(), features.begin(), features.end());
      }
    } else {
      of_side.insert(of_side.end(), positives.begin(), positives.end());
    }
  }
  const double max_norm = model.spec.max_norm;
  if (tables.lhs.embeddings == tables.rhs.embeddings) {
    offsets[0].insert(offsets[0].end(), offsets[1].begin(), offsets[1].end());
  } else {
    rhs_ = std::make_unique<GatheredRows>(TableOf(tables.rhs), std::move(offsets[1]), precision,
                                          max_norm);
  }
  lhs_ = std::make_unique<GatheredRows>(TableOf(tables.lhs), std::move(offsets[0]), precision,
                                        max_norm);
  if (max_norm > 0) MarkTables();
}

std::span<const EntityOffset> BatchGraph::Offsets(Side side) const { return batch_.ids(side); }

std::span<const EntityOffset> BatchGraph::Samples(Side side) const {
  return side == Side::kLhs ? negatives_.lhs : negatives_.rhs;
}

EntityTypeId BatchGraph::EntityType(Side side) const {
  return side == Side::kLhs ? relation_spec_.lhs : relation_spec_.rhs;
}

const GatheredRows& BatchGraph::ParameterRows(Parameter* parameter, std::span<const int32_t> rows) {
  const auto found = parameters_.find(parameter);
  if (found != parameters_.end()) return found->second.rows;
  GatheredRows gathered(TableOf(*parameter), {rows.begin(), rows.end()}, precision_,
                        /*max_norm=*/0);
  return parameters_.emplace(parameter, GatheredParameter{parameter, std::move(gathered)})
      .first->second.rows;
}

Tensors BatchGraph::OperatorParameters(Side side) {
  const OperatorInstance& op = model_.operators[static_cast<int>(side)][relation_];
  Tensors tensors;
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    std::vector<int64_t> shape = op.shapes[i];
    if (model_.spec.dynamic()) {
      shape.insert(shape.begin(), num_edges_);
      tensors.push_back(ParameterRows(op.parameters[i], batch_.rel).Lookup(batch_.rel).view(shape));
    } else {
      static constexpr int32_t kOnlyRow[] = {0};
      tensors.push_back(ParameterRows(op.parameters[i], kOnlyRow).all().view(shape));
    }
  }
  return tensors;
}

at::Tensor BatchGraph::AddGlobalEmbedding(const at::Tensor& x, Side side) {
  if (model_.global_embeddings.empty()) return x;
  static constexpr int32_t kOnlyRow[] = {0};
  return x + ParameterRows(model_.global_embeddings[EntityType(side)], kOnlyRow).all();
}

at::Tensor BatchGraph::ApplyOperator(const at::Tensor& x, Side side) {
  return model_.operators[static_cast<int>(side)][relation_].definition->forward(
      x, OperatorParameters(side));
}

at::Tensor BatchGraph::Prepare(const at::Tensor& x) const {
  const auto& prepare = model_.comparator->prepare;
  if (!prepare) return x;
  if (!model_.spec.bias) return prepare(x);
  const int64_t d = x.size(1);
  return at::cat({x.narrow(1, 0, 1), prepare(x.narrow(1, 1, d - 1))}, 1);
}

at::Tensor BatchGraph::Score(const at::Tensor& a, const at::Tensor& b) const {
  if (!model_.spec.bias) return model_.comparator->score(a, b);
  const int64_t d = a.size(2);
  return model_.comparator->score(a.narrow(2, 1, d - 1), b.narrow(2, 1, d - 1)) +
         a.select(2, 0).unsqueeze(2) + b.select(2, 0).unsqueeze(1);
}

at::Tensor BatchGraph::Ready(const at::Tensor& rows, Side side, bool with_operator) {
  const at::Tensor x = AddGlobalEmbedding(rows, side);
  return Prepare(with_operator ? ApplyOperator(x, side) : x);
}

at::Tensor BatchGraph::Vectors(std::span<const EntityOffset> offsets, Side side,
                               bool with_operator) {
  return Ready(RowsOf(side).Lookup(offsets), side, with_operator);
}

at::Tensor BatchGraph::Positives(Side side, bool with_operator) {
  const FeatureBags* bags = batch_.bags(side);
  if (bags == nullptr) return Vectors(Offsets(side), side, with_operator);
  std::vector<EntityOffset> features;
  std::vector<int64_t> edges;  // of each feature
  at::Tensor counts = at::zeros({num_edges_, 1}, precision_);
  for (int64_t i = 0; i < num_edges_; ++i) {
    const std::span<const EntityOffset> bag = (*bags)[Offsets(side)[i]];
    features.insert(features.end(), bag.begin(), bag.end());
    edges.insert(edges.end(), bag.size(), i);
    counts[i][0] = static_cast<double>(std::max<size_t>(bag.size(), 1));
  }
  const at::Tensor rows = RowsOf(side).Lookup(features);
  const at::Tensor index =
      at::from_blob(edges.data(), {static_cast<int64_t>(edges.size())}, at::kLong).clone();
  const at::Tensor sums = at::zeros({num_edges_, rows.size(1)}, rows.options());
  return Ready(sums.index_add(0, index, rows) / counts, side, with_operator);
}

absl::Status BatchGraph::Forward() {
  if (model_.spec.dynamic()) {
    // Operators differ from edge to edge, so they act on the side that is kept: (u', h_r(v)) for a
    // corrupted left-hand side, (g_r(u), v') for a corrupted right-hand side.
    reg_ = at::zeros({}, precision_);
    for (const Side side : kSides) {
      const Side kept = Opposite(side);
      const at::Tensor own = Positives(side, /*with_operator=*/false);
      const at::Tensor fixed = Positives(kept, /*with_operator=*/true);
      directions_[static_cast<int>(side)] = Corrupt(side, own, fixed, /*with_operator=*/false);
      reg_ = reg_ + Regularization(own, fixed, kept, /*times=*/1);
    }
  } else {
    const at::Tensor lhs = Positives(Side::kLhs, /*with_operator=*/false);
    const at::Tensor rhs = Positives(Side::kRhs, /*with_operator=*/true);
    directions_[0] = Corrupt(Side::kLhs, lhs, rhs, /*with_operator=*/false);
    directions_[1] = Corrupt(Side::kRhs, rhs, lhs, /*with_operator=*/true);
    reg_ = Regularization(lhs, rhs, Side::kRhs, num_chunks_);
  }
  for (const Side side : kSides) {
    WEFT_RETURN_IF_ERROR(CheckScores(directions_[static_cast<int>(side)], side));
  }
  loss_ = (LossOf(directions_[0]) + LossOf(directions_[1])) * relation_spec_.weight;
  return absl::OkStatus();
}

at::Tensor BatchGraph::Chunked(const at::Tensor& x) const {
  const int64_t missing = num_chunks_ * chunk_size_ - num_edges_;
  const at::Tensor padded =
      missing == 0 ? x : at::cat({x, at::zeros({missing, x.size(1)}, x.options())});
  return padded.reshape({num_chunks_, chunk_size_, x.size(1)});
}

BatchGraph::Direction BatchGraph::Corrupt(Side side, const at::Tensor& own, const at::Tensor& fixed,
                                          bool with_operator) {
  Direction direction;
  direction.pos = Score(fixed.unsqueeze(1), own.unsqueeze(1)).reshape({num_edges_});

  const NegativeKind kind = model_.spec.negatives(relation_, side);
  const int64_t d = own.size(1);
  if (kind == NegativeKind::kNone) {
    direction.neg = at::zeros({num_edges_, 0}, own.options());
    return direction;
  }
  at::Tensor candidates;  // [c, num_neg, d]
  if (kind == NegativeKind::kAll) {
    candidates = Vectors(AllOffsets((side == Side::kLhs ? tables_.lhs : tables_.rhs).count), side,
                         with_operator)
                     .unsqueeze(0);
  } else {
    candidates = Vectors(Samples(side), side, with_operator)
                     .reshape({num_chunks_, model_.spec.UniformNegatives(relation_, side), d});
    if (kind == NegativeKind::kBatchUniform) candidates = at::cat({Chunked(own), candidates}, 1);
  }
  direction.neg = Score(Chunked(fixed), candidates)
                      .masked_fill(PairsToIgnore(side, candidates.size(1)), kIgnoredScore)
                      .flatten(0, 1)
                      .narrow(0, 0, num_edges_);
  return direction;
}

at::Tensor BatchGraph::PairsToIgnore(Side side, int64_t num_neg) const {
  at::Tensor ignore = at::zeros({num_chunks_, chunk_size_, num_neg}, at::kBool);
  auto mark = ignore.accessor<bool, 3>();
  const NegativeKind kind = model_.spec.negatives(relation_, side);
  for (int64_t i = 0; i < num_edges_; ++i) {
    const int64_t chunk = i / chunk_size_;
    const int64_t row = i % chunk_size_;
    if (kind == NegativeKind::kAll) {
      mark[chunk][row][Offsets(side)[i]] = true;
    } else if (kind == NegativeKind::kBatchUniform) {
      mark[chunk][row][row] = true;
      // Padding; only the last chunk has any.
      for (int64_t j = num_edges_ - chunk * chunk_size_; j < chunk_size_; ++j) {
        mark[chunk][row][j] = true;
      }
    }
  }
  return ignore;
}

at::Tensor BatchGraph::LossOf(const Direction& direction) const {
  const at::Tensor losses =
      model_.loss->forward(direction.pos, direction.neg, LossOptions{.margin = model_.spec.margin});
  if (batch_.weight.empty()) return losses.sum(at::kDouble);
  const at::Tensor weights =
      ViewOf(const_cast<float*>(batch_.weight.data()), {num_edges_}).to(precision_);
  return (losses * weights).sum(at::kDouble);
}

at::Tensor BatchGraph::Regularization(const at::Tensor& a, const at::Tensor& b, Side side,
                                      int64_t times) {
  if (model_.spec.regularization_coef == 0) return at::zeros({}, precision_);
  const OperatorDefinition& op = *model_.operators[static_cast<int>(side)][relation_].definition;
  // |x|^3 = (|x|^2)^1.5 has a gradient at zero, where the modulus itself has none.
  const auto cubes = [](const at::Tensor& squares) { return squares.pow(1.5).sum(); };
  const auto vector_cubes = [&](const at::Tensor& x) {
    if (!op.complex) return cubes(x.square());
    const int64_t half = x.size(1) / 2;
    return cubes(x.narrow(1, 0, half).square() + x.narrow(1, half, half).square());
  };
  at::Tensor total = vector_cubes(a) + vector_cubes(b);
  const Tensors p = OperatorParameters(side);
  if (op.squared_moduli) {
    total = total + cubes(op.squared_moduli(p)) * times;
  } else {
    for (const at::Tensor& parameter : p) total = total + cubes(parameter.square()) * times;
  }
  return total * model_.spec.regularization_coef;
}

std::string BatchGraph::RelationName(int64_t edge) const {
  if (model_.spec.dynamic()) return absl::StrCat("relation ", batch_.rel[edge]);
  return absl::StrCat("relation ", relation_, " (", relation_spec_.name, ")");
}

absl::Status BatchGraph::CheckScores(const Direction& direction, Side side) const {
  for (const at::Tensor& scores : {direction.pos, direction.neg}) {
    if (AllFinite(scores)) continue;
    const int64_t edge = FirstNonFinite(scores);
    const bool is_positive = scores.dim() == 1;
    return absl::OutOfRangeError(absl::StrCat(
        RelationName(edge), ": the score of ",
        is_positive ? "the edge " : "a negative of the edge ", batch_.lhs[edge], " -> ",
        batch_.rhs[edge],
        is_positive ? "" : (side == Side::kLhs ? " (left-hand side)" : " (right-hand side)"),
        " is not finite"));
  }
  return absl::OkStatus();
}

absl::Status BatchGraph::Backward() {
  const at::Tensor total = loss_ + reg_;
  // A loss without negatives may depend on nothing.
  if (total.requires_grad()) total.backward();
  for (const Side side : kSides) {
    const GatheredRows& rows = RowsOf(side);
    const at::Tensor gradient = rows.gradient();
    if (AllFinite(gradient)) continue;
    const EntityOffset offset = rows.offsets()[FirstNonFinite(gradient)];
    const auto positives = Offsets(side);
    const bool featurized = batch_.bags(side) != nullptr;
    const auto edge = featurized ? positives.end() : std::ranges::find(positives, offset);
    return absl::OutOfRangeError(
        absl::StrCat(RelationName(edge == positives.end() ? 0 : edge - positives.begin()),
                     ": the gradient of ", featurized ? "feature " : "entity ", offset, " of type ",
                     model_.spec.entity_types[EntityType(side)].name, " is not finite"));
  }
  for (const auto& [_, p] : parameters_) {
    if (AllFinite(p.rows.gradient())) continue;
    return absl::OutOfRangeError(absl::StrCat(RelationName(0), ": the gradient of parameter ",
                                              p.parameter->name, " is not finite"));
  }
  return absl::OkStatus();
}

void BatchGraph::MarkTables() const {
  MarkRows(tables_.lhs.changed, *lhs_);
  if (rhs_) MarkRows(tables_.rhs.changed, *rhs_);
}

void BatchGraph::Step() const {
  lhs_->StepRowAdagrad(tables_.lhs.adagrad_sums, model_.spec.lr);
  if (rhs_) rhs_->StepRowAdagrad(tables_.rhs.adagrad_sums, model_.spec.lr);
  for (const auto& [_, p] : parameters_) {
    p.rows.StepAdagrad(p.parameter->adagrad_sums.data(), model_.spec.relation_lr);
    if (!p.parameter->changed.empty()) MarkRows(p.parameter->changed.data(), p.rows);
  }
  MarkTables();
}

BatchStats BatchGraph::stats() const {
  BatchStats stats;
  stats.count = num_edges_;
  stats.loss = loss_.item<double>();
  stats.reg = reg_.item<double>();
  const auto violators = [](const Direction& d) {
    return d.neg.gt(d.pos.unsqueeze(1)).sum().item<int64_t>();
  };
  stats.violators_lhs = violators(directions_[0]);
  stats.violators_rhs = violators(directions_[1]);
  return stats;
}

BatchScores BatchGraph::scores() const {
  return {.lhs_pos = ToFloats(directions_[0].pos),
          .rhs_pos = ToFloats(directions_[1].pos),
          .lhs_neg = ToFloats(directions_[0].neg),
          .rhs_neg = ToFloats(directions_[1].neg),
          .lhs_num_neg = directions_[0].neg.size(1),
          .rhs_num_neg = directions_[1].neg.size(1)};
}

BatchGradients BatchGraph::gradients() const {
  const auto rows = [](const GatheredRows& from) {
    return BatchGradients::Rows{{from.offsets().begin(), from.offsets().end()},
                                ToFloats(from.gradient())};
  };
  BatchGradients gradients;
  gradients.lhs = rows(*lhs_);
  if (rhs_) gradients.rhs = rows(*rhs_);
  for (const auto& [_, p] : parameters_) {
    std::vector<float>& whole = gradients.parameters[p.parameter->name];
    whole.resize(p.parameter->size());
    const std::vector<float> touched = ToFloats(p.rows.gradient());
    const int64_t cols = p.parameter->values.cols();
    int64_t from = 0;
    for (const int32_t row : p.rows.offsets()) {
      std::copy_n(touched.begin() + from, cols, whole.begin() + row * cols);
      from += cols;
    }
  }
  return gradients;
}

}  // namespace weft::nn
