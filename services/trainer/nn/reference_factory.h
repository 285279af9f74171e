// The reference implementation of BatchStep: LibTorch tensors and autograd, the formulas written
// the obvious way. It is what `compute: reference` runs, what the tests compare the fused
// implementation with, and how operators, comparators and losses of one's own come into a run
// (registry.h).
//
// This is the whole interface of the library weft_nn besides the registries; it names no LibTorch
// type. A program that does not link weft_nn opens it with services/trainer/reference_loader.h.
#pragma once

#include "services/trainer/batch_step.h"

namespace weft::nn {

enum class Precision {
  kFloat,   // for training
  kDouble,  // for tests: tables and parameters stay float32, what is computed from them is float64
};

// Lives as long as the process. Its functions may be called from any thread.
//
// MakeParameters: InvalidArgument when an operator is not registered.
// Make: InvalidArgument when a name is not registered, FailedPrecondition when the parameters are
// not those of the spec. Turns the threads of LibTorch and of its BLAS off, in the whole process:
// the steps themselves are what runs in parallel.
const BatchStepFactory& ReferenceFactory(Precision precision = Precision::kFloat);

}  // namespace weft::nn

// What reference_loader.h looks up in the shared library: the float32 factory, or nullptr when
// `version` is not the version of Weft that the library was built from.
extern "C" const weft::BatchStepFactory* WeftReferenceFactory(const char* version);
