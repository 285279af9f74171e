// What a program with operators, comparators or losses of its own adds to the command line:
//
//   int main(int argc, char** argv) {
//     ... weft::nn::RegisterOperator(...) ...
//     weft::cli::SetReferenceFactory(&weft::nn::ReferenceFactory(), {.extra_operators =
//     {"rotation"}}); return weft::cli::Main(argc, argv);
//   }
//
// It links weft_cli and weft_nn. The program `weft` calls nothing here and opens libweft_nn.so when
// a run asks for it.
#pragma once

#include "absl/status/statusor.h"
#include "services/common/run_config.h"

namespace weft {
class BatchStepFactory;
}

namespace weft::cli {

// Call before Main, from its thread. `factory` must outlive the program's work. `names`: what
// configurations may name beside the built-in operators, comparators and losses.
void SetReferenceFactory(const BatchStepFactory* factory, ConfigOptions names = {});

// The factory for `compute: reference`: the one that was set, else libweft_nn.so's.
// Errors: as LoadReferenceFactory (services/trainer/reference_loader.h).
absl::StatusOr<const BatchStepFactory*> GetReferenceFactory();

// For every command that reads a run configuration.
const ConfigOptions& ProgramConfigOptions();

}  // namespace weft::cli
