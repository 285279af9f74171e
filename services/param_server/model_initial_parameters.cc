#include "services/param_server/model_initial_parameters.h"

#include <algorithm>
#include <utility>

#include "services/common/status_macros.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

absl::StatusOr<ParameterSet> ModelInitialParameters::Parameters() const {
  WEFT_ASSIGN_OR_RETURN(const ModelSpec spec,
                        MakeModelSpec(run_.config, run_.num_dynamic_relations));
  return MakeInitialParameters(spec);
}

absl::StatusOr<SharedLayout> ModelInitialParameters::Layout() {
  WEFT_ASSIGN_OR_RETURN(const ParameterSet parameters, Parameters());
  std::vector<SharedLayout::TableShape> tables(run_.entity_counts.size());
  for (size_t type = 0; type < tables.size(); ++type) {
    const std::vector<int64_t>& counts = run_.entity_counts[type];
    if (counts.size() != 1) continue;
    tables[type] = {counts[0], run_.config.EntityDimension(static_cast<EntityTypeId>(type))};
  }
  return SharedLayout::Of(parameters, tables);
}

absl::Status ModelInitialParameters::Fill(RowTable* table) {
  WEFT_ASSIGN_OR_RETURN(const ParameterSet parameters, Parameters());
  for (const RowRange& range : table->ranges()) {
    const SharedTensor& tensor = table->layout().tensor(range.tensor);
    if (const Parameter* p = parameters.Find(tensor.name)) {
      for (int64_t row = range.first; row < range.first + range.count; ++row) {
        std::copy_n(p->values.data() + tensor.RowOffset(row), tensor.RowFloats(row),
                    table->values(table->Find(range.tensor, row)).data());
      }
      continue;
    }
    for (size_t type = 0; type < run_.entity_counts.size(); ++type) {
      const auto id = static_cast<EntityTypeId>(type);
      if (tensor.name != SharedLayout::TableName(id)) continue;
      // The rows of a range lie side by side.
      FillInitialRows(run_.seed, {id, 0}, run_.config.init_scale, range.first,
                      range.first + range.count, tensor.cols,
                      table->values(table->Find(range.tensor, range.first)).data());
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
