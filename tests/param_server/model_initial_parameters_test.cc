#include "services/param_server/model_initial_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/trainer/model/model_parameters.h"
#include "services/trainer/model/model_spec.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::IsOk;

ModelInitialParameters::Run MakeRun() {
  ModelInitialParameters::Run run;
  run.config.entities.resize(2);
  run.config.entities[0].name = "user";
  run.config.entities[0].num_partitions = 4;
  run.config.entities[1].name = "tag";
  run.config.relations = {{.name = "has", .lhs = 0, .rhs = 1, .operator_name = "complex_diagonal"},
                          {.name = "like", .lhs = 0, .rhs = 0, .operator_name = "affine"}};
  run.config.dimension = 300;  // an affine matrix is cut into several rows
  run.seed = 7;
  run.entity_counts = {{10, 10, 10, 10}, {1000}};
  return run;
}

TEST(ModelInitialParametersTest, ServersBeginWithWhatOneMachineWouldBeginWith) {
  const ModelInitialParameters::Run run = MakeRun();
  SharedState state;
  state.parameters = MakeInitialParameters(*MakeModelSpec(run.config, 0));
  state.unpartitioned.emplace_back();
  state.unpartitioned.push_back(MakeInitialEmbeddings(7, {1, 0}, 1000, 300, 1e-3));
  const std::vector<LiveGroup> groups = LiveGroups(&state);
  ModelInitialParameters initial(run);

  const auto layout = initial.Layout();

  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->hash(), SharedLayout::Of(state).hash());
  int64_t rows = 0;
  for (int server = 0; server < 3; ++server) {
    RowTable table(*layout, ParamPlacement(3).RangesOf(*layout, server));
    ASSERT_THAT(initial.Fill(&table), IsOk());
    for (int64_t i = 0; i < table.num_rows(); ++i) {
      const auto [tensor, row] = table.NameOf(i);
      const float* expected =
          groups[tensor / 2].values[tensor % 2] + layout->tensor(tensor).RowOffset(row);
      const auto values = table.values(i);
      ASSERT_TRUE(std::equal(values.begin(), values.end(), expected))
          << layout->tensor(tensor).name << " row " << row;
    }
    rows += table.num_rows();
  }
  EXPECT_GT(rows, 2 * 1000);
}

TEST(ModelInitialParametersTest, AModelThatCannotBeIsRefused) {
  ModelInitialParameters::Run run = MakeRun();
  run.config.entities[1].dimension = 4;

  EXPECT_FALSE(ModelInitialParameters(run).Layout().ok());
}

}  // namespace
}  // namespace weft
