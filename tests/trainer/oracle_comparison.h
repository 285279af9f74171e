// Compares an implementation of BatchStep with the double-precision reference: scores, loss,
// counts, gradients, and everything that a whole step leaves behind.
//
// |a - b| <= tolerance * max|reference| of the tensor. Gradients of parameters are sums that
// may cancel: theirs is relative to what was summed.
#pragma once

#include "services/trainer/batch_step.h"
#include "tests/trainer/reference_step_case.h"

namespace weft::testing {

// What the reference answers for a case, computed once and compared with every implementation.
struct ReferenceAnswers {
  StepCase before;
  BatchStats stats;
  BatchScores scores;
  BatchGradients gradients;
  StepCase after;  // one training step
};

// Adds a test failure when the reference itself fails.
ReferenceAnswers AskReference(StepCase c);

// Draws cases until one has no ranking hinge too close to its kink for float32, and gradients that
// are more than what cancelled (as they do when all negatives happen to be the positive itself).
StepCase DrawComparableCase(const StepOptions& options);

// EXPECTs that the steps of `factory` do what the reference did.
void ExpectSameAnswers(const ReferenceAnswers& reference, const BatchStepFactory& factory,
                       double tolerance = 1e-5);

}  // namespace weft::testing
