// BatchParameters are the shared parameters that one batch uses (relation operators, global
// embeddings), as they were at its beginning, with their gradients.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/parameter_set.h"
#include "services/trainer/fused/arena.h"
#include "services/trainer/fused/operator_parameters.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

// Errors: FailedPrecondition when the entity type's global embedding is missing or of another size.
absl::StatusOr<Parameter*> FindGlobalEmbedding(const ModelSpec& spec, ParameterSet* parameters,
                                               EntityTypeId type);

// An entity type's global embedding, padded, and its gradient; nullptr where the model has none.
struct GlobalRow {
  float* values = nullptr;
  float* grads = nullptr;
};

// Not thread-safe: one a worker.
class BatchParameters {
 public:
  // Errors: FailedPrecondition, as FindOperatorParameters and FindGlobalEmbedding.
  static absl::StatusOr<BatchParameters> Make(const ModelSpec& spec, ParameterSet* parameters);

  // Starts a batch: nothing has been used.
  void Begin();
  // The operator of a side, if it has one. `edges`: the relations of a dynamic batch's edges, of
  // which `index` becomes the slots.
  OperatorParameters* UseOperator(Side side, RelationTypeId relation,
                                  std::span<const RelationTypeId> edges,
                                  std::vector<int32_t>* index);
  GlobalRow UseGlobal(EntityTypeId type, Arena* arena);

  // The operators used, by side; nullptr: none.
  OperatorParameters* used(Side side) const { return used_[static_cast<int>(side)]; }

  // Tests the gradients; false when one is not finite. *relation: of which, or -1.
  bool Finite(int64_t* relation) const;
  // AsyncAdagrad on what was used.
  void Step(float lr);
  // Whole parameters by name; all of the model, with zeros for what was not used.
  std::map<std::string, std::vector<float>> Export() const;

 private:
  BatchParameters() = default;

  const ParameterSet* parameters_ = nullptr;
  bool dynamic_ = false;
  std::vector<std::optional<OperatorParameters>> operators_[2];  // by side and relation
  std::vector<Parameter*> globals_;                              // by entity type; may be nullptr

  OperatorParameters* used_[2] = {nullptr, nullptr};
  std::vector<GlobalRow> global_rows_;  // by entity type
};

}  // namespace weft
