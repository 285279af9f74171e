// The shared parameters on disk, in PBG's `model.v{N}.h5`: data sets below `model/` by public name,
// each with attribute `state_dict_key`, and `optimizer/state_dict` (Adagrad's state as a torch.save
// pickle, in the order of the parameters).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/checkpoint/checkpoint_metadata.h"
#include "services/common/parameter_set.h"

namespace weft {

// Writes aside, fsyncs, renames. `lr` is the learning rate of relations.
// Errors: InvalidArgument (a parameter's name is not a public one), ResourceExhausted (disk full),
// PermissionDenied, NotFound (no such folder), Internal.
absl::Status WriteModelFile(const std::string& path, const ParameterSet& parameters, double lr,
                            const CheckpointMetadata& metadata);

// Fills `parameters` (already of the right names and shapes) from a file; sums and steps are 0 when
// the file has no optimizer state.
// Errors: NotFound, DataLoss (damaged), FailedPrecondition (a parameter is missing, unknown, or of
// another shape; names both).
absl::Status ReadModelFile(const std::string& path, ParameterSet* parameters);

// The same without the optimizer's state: sums and steps stay as they are.
absl::Status ReadModelValues(const std::string& path, ParameterSet* parameters);

// The entities_digest that the file was written with; 0 when there is none.
absl::StatusOr<uint64_t> ReadEntitiesDigest(const std::string& path);

// Every parameter of the file by its public name, whatever it holds, without sums; for export.
absl::StatusOr<ParameterSet> ReadModelFile(const std::string& path);

}  // namespace weft
