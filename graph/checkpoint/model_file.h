// The shared parameters on disk, in PBG's `model.v{N}.h5`: data sets below `model/` by public name,
// each with attribute `state_dict_key`, and `optimizer/state_dict` (Adagrad's state as a torch.save
// pickle, in the order of the parameters).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/checkpoint/embeddings_file.h"
#include "services/common/parameter_set.h"

namespace weft {

// Writes aside, fsyncs, renames. `lr` is the learning rate of relations.
absl::Status WriteModelFile(const std::string& path, const ParameterSet& parameters, double lr,
                            const CheckpointMetadata& metadata);

// Fills `parameters` (already of the right names and shapes) from a file; sums stay 0 when the file
// has no optimizer state.
// Errors: NotFound, DataLoss (damaged), FailedPrecondition (a parameter is missing, or another
// shape; names both).
absl::Status ReadModelFile(const std::string& path, ParameterSet* parameters);

// Every data set of the file by its public name, whatever it holds; for export.
absl::StatusOr<ParameterSet> ReadModelFile(const std::string& path);

}  // namespace weft
