// Opens the library with the LibTorch implementation of BatchStep while the program runs, so that
// programs and commands that do not compute with it start without LibTorch's 285 shared objects.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/trainer/batch_step.h"

namespace weft {

// The factory of libweft_nn.so, which lies beside the executable or in ../lib. Opened once, never
// closed; may be called from any thread.
// Errors:
//   NotFound: the library is not there (the message says where it was looked for).
//   FailedPrecondition: it cannot be opened, or is of another version than this program.
absl::StatusOr<const BatchStepFactory*> LoadReferenceFactory();

// The same for the library at `path`.
absl::StatusOr<const BatchStepFactory*> LoadReferenceFactoryFrom(const std::string& path);

}  // namespace weft
