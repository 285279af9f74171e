#include "cli/reference_hook.h"

#include <utility>

#include "services/trainer/reference_loader.h"

namespace weft::cli {
namespace {

const BatchStepFactory* program_factory = nullptr;

ConfigOptions& MutableConfigOptions() {
  static ConfigOptions options;
  return options;
}

}  // namespace

void SetReferenceFactory(const BatchStepFactory* factory, ConfigOptions names) {
  program_factory = factory;
  MutableConfigOptions() = std::move(names);
}

absl::StatusOr<const BatchStepFactory*> GetReferenceFactory() {
  if (program_factory != nullptr) return program_factory;
  return LoadReferenceFactory();
}

const ConfigOptions& ProgramConfigOptions() { return MutableConfigOptions(); }

}  // namespace weft::cli
