// What touches embedding tables and shared parameters while other threads do: reading rows, writing
// rows, the optimizers' steps. Beside it only block_gemm.h does, where it reads rows in place.
//
// HOGWILD (Recht, Re, Wright, Niu 2011): workers read and write without locks. A row may be read
// half updated and an update may be lost; both are rare, since a batch touches few of the rows, and
// the method converges regardless. These races are the algorithm: the two files are compiled
// without ThreadSanitizer's checks, and everything else is held to have none. Rows that are written
// are marked, if the table asks for it (changed_rows.h).
#pragma once

#include <cstdint>
#include <span>

#include "services/common/embedding_partition.h"
#include "services/common/feature_bags.h"
#include "services/common/types.h"
#include "services/trainer/kernels/row_block.h"

namespace weft {

// out: [offsets, dimension]; row i is row offsets[i] of the table, plus `addend` (nullptr: none;
// padded).
void GatherRows(const EmbeddingTable& table, std::span<const EntityOffset> offsets,
                const float* addend, const RowBlock& out);
// The rows first, first + 1, ..., as many as `out` has.
void GatherRange(const EmbeddingTable& table, int64_t first, const float* addend,
                 const RowBlock& out);

// out: [bags, dimension], without padding; row i is the mean of the rows of bags[which[i]].
void MeanRows(const EmbeddingTable& table, const FeatureBags& bags,
              std::span<const EntityOffset> which, float* out);

// Asks for rows that will be gathered soon.
void PrefetchRows(const EmbeddingTable& table, std::span<const EntityOffset> offsets);
// Where these rows begin, for a PrefetchQueue. Nothing is read.
void RowAddresses(const EmbeddingTable& table, std::span<const EntityOffset> offsets,
                  const float** addresses);

// Scales rows whose 2-norm exceeds `max_norm` by max_norm / (norm + 1e-7), in the table, as
// torch.nn.functional.embedding does. Rows that are not finite are left as they are.
void LimitRowNorms(const EmbeddingTable& table, std::span<const EntityOffset> offsets,
                   float max_norm);

// One row's step: its gradient is row `slot` of a block.
struct RowStep {
  EntityOffset offset = 0;
  int32_t slot = 0;
};
// Row-wise Adagrad: G += mean(g^2); row -= lr * g / (sqrt(G) + 1e-10).
void AdagradRows(const EmbeddingTable& table, std::span<const RowStep> steps, const RowBlock& grads,
                 float lr);

// Copies `n` floats of a shared parameter.
void ReadParameter(const float* from, int64_t n, float* to);
// Element-wise Adagrad on `n` floats: G += g^2; value -= lr * g / (sqrt(G) + 1e-10).
void AdagradElements(float* values, float* sums, const float* grads, int64_t n, float lr);

}  // namespace weft
