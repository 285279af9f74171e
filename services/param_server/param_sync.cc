#include "services/param_server/param_sync.h"

#include <utility>
#include <vector>

#include "services/common/run_config.h"
#include "services/common/status_macros.h"

namespace weft {

absl::Status ParamSync::RunParameters::Set(const StoreRunInfo& info) {
  WEFT_ASSIGN_OR_RETURN(ConfigResult read,
                        ParseRunConfig(info.config_json, "the run's configuration"));
  MutexLock lock(&mu_);
  model_ = std::make_shared<ModelInitialParameters>(ModelInitialParameters::Run{
      std::move(read.config), info.seed, info.entity_counts, info.num_dynamic_relations});
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<ModelInitialParameters>> ParamSync::RunParameters::Model() {
  MutexLock lock(&mu_);
  if (model_ == nullptr) return absl::UnavailableError("the run is not known yet");
  return model_;
}

absl::StatusOr<SharedLayout> ParamSync::RunParameters::Layout() {
  WEFT_ASSIGN_OR_RETURN(const auto model, Model());
  return model->Layout();
}

absl::Status ParamSync::RunParameters::Fill(RowTable* table) {
  WEFT_ASSIGN_OR_RETURN(const auto model, Model());
  return model->Fill(table);
}

ParamSync::ParamSync(StoreFolder* folder, RowBlockStore* store, PartitionSnapshotBlobs* blobs,
                     const ServerInfo& self, std::function<void()> changed)
    : folder_(folder),
      store_(store),
      blobs_(blobs),
      self_(self),
      orders_(store, blobs, &initial_, std::move(changed)) {}

StoreReport ParamSync::Report() {
  StoreReport report;
  report.server = self_;
  report.params = orders_.State();
  report.results = orders_.Results();
  reported_ = report.results.size();
  return report;
}

RunContext ParamSync::context() const {
  RunContext context = store_->context();
  context.run_id = folder_->run_id();
  context.generation = std::nullopt;  // the lock server tells it
  return context;
}

absl::Status ParamSync::Take(const StoreSyncClient::Answer& answer) {
  WEFT_RETURN_IF_ERROR(store_->Heard(answer.context));
  WEFT_RETURN_IF_ERROR(folder_->BindRun(answer.context.run_id));
  if (answer.run.has_value()) WEFT_RETURN_IF_ERROR(initial_.Set(*answer.run));
  blobs_->SetServers(answer.instructions.servers);
  orders_.Reported(reported_);
  reported_ = 0;
  known_revision_ = answer.instructions.revision;
  return orders_.Take(answer.context.run_id, answer.instructions);
}

}  // namespace weft
