// The operators, comparators and losses that PBG has, as definitions for the registries.
#pragma once

#include <vector>

#include "services/trainer/nn/registry.h"

namespace weft::nn {

std::vector<OperatorDefinition> BuiltinOperators(bool dynamic);
std::vector<ComparatorDefinition> BuiltinComparators();
std::vector<LossDefinition> BuiltinLosses();

}  // namespace weft::nn
