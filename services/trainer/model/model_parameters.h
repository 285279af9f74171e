// The shared parameters that a model has, under PBG's public names, and their initial values.
//
//   relations/{r}/operator/{lhs,rhs}/{param}   lhs only for dynamic relations, where r = 0
//   entities/{type}/global_embedding
//
// Shapes (n = number of dynamic relations; the first axis is missing for static ones):
//   translation       translation(s)            [n, dim]       initially 0
//   diagonal          diagonal(s)               [n, dim]       initially 1
//   linear, affine    linear_transformation(s)  [n, dim, dim]  initially the identity
//   affine            translation(s)            [n, dim]       initially 0
//   complex_diagonal  real, imag                [n, dim / 2]   initially 1 and 0
//   global_embedding                            [dim]          initially 0
// Names have the plural `s` for dynamic relations (PBG's), except real and imag.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/common/embedding_partition.h"
#include "services/common/parameter_set.h"
#include "services/common/types.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

// A parameter that a model has: `rows` x `cols` is the shape of its block.
struct ParameterShape {
  enum class Initial { kZero, kOne, kIdentity };

  std::string name;
  std::vector<int64_t> shape;
  int64_t rows = 0;
  int64_t cols = 0;
  Initial initial = Initial::kZero;
};

// In the order of a ParameterSet. Built-in operators only, as below.
std::vector<ParameterShape> ParameterShapes(const ModelSpec& spec);

// Built-in operators only; a custom operator's parameters are added by who registered it.
ParameterSet MakeInitialParameters(const ModelSpec& spec);

// "relations/3/operator/rhs/diagonal".
std::string OperatorParameterName(RelationTypeId relation, Side side, std::string_view param);
std::string GlobalEmbeddingName(const std::string& entity_type);

// Initial embeddings: independent normal values times `init_scale`, a function of
// (seed, type, partition, offset) alone, equal on every CPU; sums 0.
EmbeddingPartition MakeInitialEmbeddings(uint64_t seed, PartitionKey key, int64_t count,
                                         int64_t dimension, double init_scale);

// Rows [begin, end) of the same, into a table of the partition's dimension: threads may fill parts
// of one table.
void FillInitialEmbeddings(uint64_t seed, PartitionKey key, double init_scale, int64_t begin,
                           int64_t end, FloatBlock* embeddings);
// The same rows into memory that holds only them: out [end - begin, dimension].
void FillInitialRows(uint64_t seed, PartitionKey key, double init_scale, int64_t begin, int64_t end,
                     int64_t dimension, float* out);

}  // namespace weft
