#include "services/trainer/model/model_parameters.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "services/common/random.h"
#include "services/trainer/kernels/normal_rows.h"

namespace weft {
namespace {

void AddOperatorParameters(const ModelSpec& spec, RelationTypeId r, Side side,
                           ParameterSet* parameters) {
  const int64_t dim = spec.dimension(r);
  const int64_t n = spec.dynamic() ? spec.num_dynamic_relations : 1;
  // A parameter of `cols` floats for each relation, shaped [n, tail...] or [tail...].
  auto add = [&](std::string_view name, bool plural, std::vector<int64_t> tail) -> FloatBlock& {
    int64_t cols = 1;
    for (const int64_t t : tail) cols *= t;
    std::vector<int64_t> shape = tail;
    if (spec.dynamic()) shape.insert(shape.begin(), n);
    const std::string full = absl::StrCat(std::string(name), plural && spec.dynamic() ? "s" : "");
    return parameters->Add(OperatorParameterName(r, side, full), shape, n, cols).values;
  };
  auto add_linear = [&] {
    FloatBlock& values = add("linear_transformation", true, {dim, dim});
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < dim; ++k) values.row(i)[k * dim + k] = 1;
    }
  };
  switch (spec.relation(r).op) {
    case Operator::kNone:
    case Operator::kCustom:
      break;
    case Operator::kTranslation:
      add("translation", true, {dim});
      break;
    case Operator::kDiagonal:
      std::ranges::fill(add("diagonal", true, {dim}).span(), 1.0f);
      break;
    case Operator::kLinear:
      add_linear();
      break;
    case Operator::kAffine:
      add_linear();
      add("translation", true, {dim});
      break;
    case Operator::kComplexDiagonal:
      std::ranges::fill(add("real", false, {dim / 2}).span(), 1.0f);
      add("imag", false, {dim / 2});
      break;
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

ParameterSet MakeInitialParameters(const ModelSpec& spec) {
  ParameterSet parameters;
  for (const Side side : kSides) {
    if (side == Side::kLhs && !spec.dynamic()) continue;
    for (size_t r = 0; r < spec.relations.size(); ++r) {
      AddOperatorParameters(spec, static_cast<RelationTypeId>(r), side, &parameters);
    }
  }
  if (spec.global_emb) {
    for (const EntityTypeSpec& type : spec.entity_types) {
      parameters.Add(GlobalEmbeddingName(type.name), {type.dimension}, 1, type.dimension);
    }
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
