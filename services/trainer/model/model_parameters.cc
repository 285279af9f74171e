#include "services/trainer/model/model_parameters.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/random.h"
#include "services/trainer/kernels/normal_rows.h"

namespace weft {
namespace {

using Initial = ParameterShape::Initial;

void AddOperatorShapes(const ModelSpec& spec, RelationTypeId r, Side side,
                       std::vector<ParameterShape>* shapes) {
  const int64_t dim = spec.dimension(r);
  const int64_t n = spec.dynamic() ? spec.num_dynamic_relations : 1;
  // A parameter of the product of `tail` floats for each relation, shaped [n, tail...] or
  // [tail...].
  auto add = [&](std::string_view name, bool plural, std::vector<int64_t> tail, Initial initial) {
    int64_t cols = 1;
    for (const int64_t t : tail) cols *= t;
    if (spec.dynamic()) tail.insert(tail.begin(), n);
    const std::string full = absl::StrCat(std::string(name), plural && spec.dynamic() ? "s" : "");
    shapes->push_back({OperatorParameterName(r, side, full), std::move(tail), n, cols, initial});
  };
  switch (spec.relation(r).op) {
    case Operator::kNone:
    case Operator::kCustom:
      break;
    case Operator::kTranslation:
      add("translation", true, {dim}, Initial::kZero);
      break;
    case Operator::kDiagonal:
      add("diagonal", true, {dim}, Initial::kOne);
      break;
    case Operator::kLinear:
      add("linear_transformation", true, {dim, dim}, Initial::kIdentity);
      break;
    case Operator::kAffine:
      add("linear_transformation", true, {dim, dim}, Initial::kIdentity);
      add("translation", true, {dim}, Initial::kZero);
      break;
    case Operator::kComplexDiagonal:
      add("real", false, {dim / 2}, Initial::kOne);
      add("imag", false, {dim / 2}, Initial::kZero);
      break;
  }
}

void FillInitialValues(const ParameterShape& shape, FloatBlock* values) {
  if (shape.initial == Initial::kOne) std::ranges::fill(values->span(), 1.0f);
  if (shape.initial != Initial::kIdentity) return;
  const int64_t dim = shape.shape.back();
  for (int64_t i = 0; i < shape.rows; ++i) {
    for (int64_t k = 0; k < dim; ++k) values->row(i)[k * dim + k] = 1;
  }
}

}  // namespace

std::string OperatorParameterName(RelationTypeId relation, Side side, std::string_view param) {
  return absl::StrCat("relations/", relation, "/operator/", side == Side::kLhs ? "lhs" : "rhs", "/",
                      std::string(param));
}

std::string GlobalEmbeddingName(const std::string& entity_type) {
  return absl::StrCat("entities/", entity_type, "/global_embedding");
}

std::vector<ParameterShape> ParameterShapes(const ModelSpec& spec) {
  std::vector<ParameterShape> shapes;
  for (const Side side : kSides) {
    if (side == Side::kLhs && !spec.dynamic()) continue;
    for (size_t r = 0; r < spec.relations.size(); ++r) {
      AddOperatorShapes(spec, static_cast<RelationTypeId>(r), side, &shapes);
    }
  }
  if (spec.global_emb) {
    for (const EntityTypeSpec& type : spec.entity_types) {
      shapes.push_back({GlobalEmbeddingName(type.name),
                        {type.dimension},
                        1,
                        type.dimension,
                        ParameterShape::Initial::kZero});
    }
  }
  return shapes;
}

ParameterSet MakeInitialParameters(const ModelSpec& spec) {
  ParameterSet parameters;
  for (const ParameterShape& shape : ParameterShapes(spec)) {
    Parameter& added = parameters.Add(shape.name, shape.shape, shape.rows, shape.cols);
    FillInitialValues(shape, &added.values);
  }
  return parameters;
}

void FillInitialEmbeddings(uint64_t seed, PartitionKey key, double init_scale, int64_t begin,
                           int64_t end, FloatBlock* embeddings) {
  FillInitialRows(seed, key, init_scale, begin, end, embeddings->cols(),
                  embeddings->row(begin).data());
}

void FillInitialRows(uint64_t seed, PartitionKey key, double init_scale, int64_t begin, int64_t end,
                     int64_t dimension, float* out) {
  const uint64_t which =
      (static_cast<uint64_t>(key.entity_type) << 32) | static_cast<uint32_t>(key.partition);
  RandomStream random(seed, RandomUse::kInitialEmbedding, which);
  const std::array<uint32_t, 2> row_key = {random(), random()};
  FillNormalRows(row_key, begin, end - begin, dimension, static_cast<float>(init_scale), out);
}

EmbeddingPartition MakeInitialEmbeddings(uint64_t seed, PartitionKey key, int64_t count,
                                         int64_t dimension, double init_scale) {
  EmbeddingPartition partition(count, dimension);
  FillInitialEmbeddings(seed, key, init_scale, 0, count, &partition.embeddings);
  return partition;
}

}  // namespace weft
