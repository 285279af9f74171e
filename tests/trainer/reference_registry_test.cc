// Operators, comparators and losses of one's own: registered in a few lines, they train.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "services/trainer/nn/reference_factory.h"
#include "services/trainer/nn/registry.h"
#include "tests/testing/status_matchers.h"
#include "tests/trainer/reference_step_case.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::weft::testing::DrawStepCase;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;
using ::weft::testing::StepCase;
using ::weft::testing::StepOptions;

// Complex numbers turned by an angle each, as in RotatE (Sun et al. 2019).
nn::OperatorDefinition Rotation(const std::string& parameter) {
  return {
      .name = "test_rotation",
      .parameters =
          [parameter](int64_t d) {
            return nn::Parameters{{parameter, {d / 2}}};
          },
      .forward =
          [](const at::Tensor& x, const nn::Tensors& p) {
            const int64_t half = x.size(-1) / 2;
            const at::Tensor re = x.narrow(-1, 0, half);
            const at::Tensor im = x.narrow(-1, half, half);
            const at::Tensor cos = p[0].cos();
            const at::Tensor sin = p[0].sin();
            return at::cat({re * cos - im * sin, re * sin + im * cos}, -1);
          },
  };
}

StepCase CustomCase(const StepOptions& options, const std::string& operator_name) {
  StepCase c = DrawStepCase(options, 1);
  for (RelationSpec& relation : c.spec.relations) {
    relation.op = Operator::kCustom;
    relation.operator_name = operator_name;
  }
  auto parameters = nn::ReferenceFactory().MakeParameters(c.spec);
  EXPECT_THAT(parameters, IsOk());
  if (parameters.ok()) c.parameters = *std::move(parameters);
  return c;
}

void ExpectLossGoesDown(StepCase& c) {
  const auto step = nn::ReferenceFactory().Make(c.spec, &c.parameters);
  ASSERT_THAT(step, IsOk());
  double first = 0;
  double last = 0;
  for (int i = 0; i < 30; ++i) {
    const auto stats = (*step)->Train(c.batch(), c.negatives, c.tables());
    ASSERT_THAT(stats, IsOk());
    if (i == 0) first = stats->loss;
    last = stats->loss;
  }
  EXPECT_LT(last, 0.7 * first);
}

TEST(RegistryTest, AnOperatorOfOnesOwnTrainsInStaticAndDynamicRelations) {
  ASSERT_THAT(nn::RegisterOperator(Rotation("angle")), IsOk());
  ASSERT_THAT(nn::RegisterDynamicOperator(Rotation("angles")), IsOk());
  for (const bool dynamic : {false, true}) {
    StepOptions options;
    options.dynamic = dynamic;
    StepCase c = CustomCase(options, "test_rotation");
    const Parameter* angles = c.parameters.Find(dynamic ? "relations/0/operator/lhs/angles"
                                                        : "relations/1/operator/rhs/angle");
    ASSERT_NE(angles, nullptr);
    EXPECT_EQ(angles->shape, dynamic ? (std::vector<int64_t>{3, 3}) : std::vector<int64_t>{3});

    ExpectLossGoesDown(c);

    EXPECT_NE(angles->values.row(0)[0], 0);
  }
}

TEST(RegistryTest, AComparatorAndALossOfOnesOwnTrain) {
  ASSERT_THAT(nn::RegisterComparator({
                  .name = "test_half_dot",
                  .score = [](const at::Tensor& a,
                              const at::Tensor& b) { return a.matmul(b.transpose(1, 2)) / 2; },
              }),
              IsOk());
  ASSERT_THAT(
      nn::RegisterLoss({
          .name = "test_squared_hinge",
          .forward =
              [](const at::Tensor& pos, const at::Tensor& neg, const nn::LossOptions& options) {
                return (neg - pos.unsqueeze(1) + options.margin).clamp_min(0).square().sum(1);
              },
      }),
      IsOk());
  StepCase c = DrawStepCase({}, 1);
  c.spec.comparator = Comparator::kCustom;
  c.spec.comparator_name = "test_half_dot";
  c.spec.loss = Loss::kCustom;
  c.spec.loss_name = "test_squared_hinge";

  ExpectLossGoesDown(c);
}

TEST(RegistryTest, WhatAnOperatorThrowsIsAnError) {
  nn::OperatorDefinition broken = Rotation("angle");
  broken.name = "test_broken";
  broken.forward = [](const at::Tensor& x, const nn::Tensors&) -> at::Tensor {
    TORCH_CHECK(x.size(0) < 0, "no vectors today");
    return x;
  };
  ASSERT_THAT(nn::RegisterOperator(broken), IsOk());
  StepCase c = CustomCase({}, "test_broken");
  const auto step = nn::ReferenceFactory().Make(c.spec, &c.parameters);
  ASSERT_THAT(step, IsOk());

  EXPECT_THAT((*step)->Train(c.batch(), c.negatives, c.tables()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no vectors today")));
}

TEST(RegistryTest, RefusesTakenNamesAndIncompleteDefinitions) {
  EXPECT_THAT(nn::RegisterLoss({.name = "softmax", .forward = nn::FindLoss("ranking")->forward}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("'softmax'")));
  EXPECT_THAT(nn::RegisterComparator({.name = "test_empty"}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  nn::OperatorDefinition nameless = Rotation("angle");
  nameless.name.clear();
  EXPECT_THAT(nn::RegisterOperator(nameless), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(RegistryTest, RefusesInitialValuesThatDoNotFillTheirShape) {
  nn::OperatorDefinition uneven = Rotation("angle");
  uneven.name = "test_uneven";
  uneven.parameters = [](int64_t) { return nn::Parameters{{"angle", {3}, {1.0f}}}; };
  ASSERT_THAT(nn::RegisterOperator(uneven), IsOk());
  StepCase c = DrawStepCase({}, 1);
  c.spec.relations[0].op = Operator::kCustom;
  c.spec.relations[0].operator_name = "test_uneven";

  EXPECT_THAT(nn::ReferenceFactory().MakeParameters(c.spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1 initial values")));
}

TEST(RegistryTest, ListsWhatIsBuiltIn) {
  const nn::RegisteredNames names = nn::AllRegisteredNames();
  for (const char* name :
       {"none", "translation", "diagonal", "linear", "affine", "complex_diagonal"}) {
    EXPECT_THAT(names.operators, Contains(name));
  }
  for (const char* name : {"dot", "cos", "l2", "squared_l2"}) {
    EXPECT_THAT(names.comparators, Contains(name));
  }
  for (const char* name : {"ranking", "logistic", "softmax"}) {
    EXPECT_THAT(names.losses, Contains(name));
  }
}

}  // namespace
}  // namespace weft
