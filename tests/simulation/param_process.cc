#include "tests/simulation/param_process.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft::simulation {

SharedState MakeCounts(size_t num_buckets) {
  SharedState state;
  const auto rows = static_cast<int64_t>(num_buckets);
  state.parameters.Add("counts", {rows}, rows, 1);
  return state;
}

ParamProcess::ParamProcess(World* world, std::string name, double clock_rate, size_t num_buckets,
                           const Addresses* addresses)
    : Process(world, std::move(name), clock_rate),
      addresses_(addresses),
      store_id_(world->NewId()),
      initial_(num_buckets) {}

absl::Status ParamProcess::Begin() {
  incarnation_ = world_->NewId();
  WEFT_ASSIGN_OR_RETURN(store_, RowBlockStore::Open({.incarnation = incarnation_}, &log_));
  blobs_ = std::make_unique<PartitionSnapshotBlobs>(&transfer_);
  sync_ = std::make_unique<Sync>(this);
  poll_ = std::make_unique<StorePoll>(this, addresses_->lock, sync_.get(), StoreRunInfo(), nullptr,
                                      [this](const std::string& why) { Exit(why); });
  return absl::OkStatus();
}

void ParamProcess::End() {
  poll_.reset();
  sync_.reset();
  blobs_.reset();
  store_.reset();
}

void ParamProcess::FailMachine() {
  Kill();
  log_.Crash(world_->Below(static_cast<uint32_t>(log_.num_unsynced()) + 1));
}

void ParamProcess::Join(const JoinRequest& request, const Reply<Told<JoinPage>>& reply) {
  const absl::StatusOr<JoinPage> page = store_->Join(request);
  if (!page.ok()) return reply(page.status());
  reply(Told<JoinPage>{store_->context(), *page});
}

void ParamProcess::Push(const PushRequest& request, const Reply<Told<PushAnswer>>& reply) {
  const absl::StatusOr<PushAnswer> answer = store_->Push(request);
  if (!answer.ok()) return reply(answer.status());
  reply(Told<PushAnswer>{store_->context(), *answer});
}

bool ParamProcess::AddCounts(std::vector<double>* counts) {
  if (!up() || !store_->share().has_value()) return false;
  const auto snapshot = store_->Snapshot(store_->share()->generation, std::nullopt);
  if (!snapshot.ok()) return false;
  int64_t at = 0;
  for (const RowRange& range : (*snapshot)->ranges) {
    for (int64_t row = range.first; row < range.first + range.count; ++row) {
      const float value = (*snapshot)->values.data()[at++];
      if (range.tensor == 0) (*counts)[static_cast<size_t>(row)] += static_cast<double>(value);
    }
  }
  return true;
}

absl::StatusOr<PartitionProcess*> ParamProcess::Transfer::Find(const std::string& address) {
  const auto found = process_->addresses_->partitions.find(address);
  if (found == process_->addresses_->partitions.end() ||
      !process_->world_->Reaches(process_, found->second)) {
    return absl::UnavailableError("nobody answers");
  }
  return found->second;
}

RunContext ParamProcess::Transfer::Context() const {
  RunContext context = process_->store_->context();
  context.generation.reset();  // blobs are the same in every generation
  return context;
}

absl::StatusOr<Place> ParamProcess::Transfer::Put(const std::string& address, const ShardName& name,
                                                  const BlobInfo& info,
                                                  absl::Span<const uint64_t> checksums,
                                                  SegmentSource source) {
  WEFT_ASSIGN_OR_RETURN(PartitionProcess* const store, Find(address));
  BlobMessage blob = {info, {checksums.begin(), checksums.end()}, {}};
  for (size_t i = 0; i < checksums.size(); ++i) {
    std::string& segment = blob.segments.emplace_back();
    for (const absl::string_view piece : source(static_cast<int64_t>(i))) {
      segment.append(piece.data(), piece.size());
    }
  }
  WEFT_ASSIGN_OR_RETURN(const Place place, store->PutNow(Context(), name, blob));
  if (!process_->world_->Reaches(store, process_)) return absl::UnavailableError("no answer");
  return place;
}

absl::Status ParamProcess::Transfer::Get(const std::string& address, const ShardName& name,
                                         const BlobInfo& info, SegmentSink sink) {
  WEFT_ASSIGN_OR_RETURN(PartitionProcess* const store, Find(address));
  WEFT_ASSIGN_OR_RETURN(const BlobMessage blob, store->GetNow(Context(), name));
  if (blob.info != info) return absl::DataLossError("another blob");
  for (size_t i = 0; i < blob.segments.size(); ++i) {
    WEFT_RETURN_IF_ERROR(
        sink(static_cast<int64_t>(i), blob.checksums[i], {absl::string_view(blob.segments[i])}));
  }
  return absl::OkStatus();
}

RunContext ParamProcess::Sync::context() const {
  RunContext context = process_->store_->context();
  context.run_id = process_->run_id_;
  context.generation = std::nullopt;  // the lock server tells it
  return context;
}

StoreReport ParamProcess::Sync::Report() {
  StoreReport report;
  report.server = {ServerRole::kParam, process_->store_id_, process_->incarnation_,
                   process_->name(), true};
  if (const auto share = process_->store_->share(); share.has_value()) {
    report.params = {share->generation, process_->store_->first_open_pass(),
                     process_->store_->joined()};
    std::ranges::sort(report.params.joined);  // a seed is a run
  }
  report.results = results_;
  reported_ = results_.size();
  return report;
}

absl::Status ParamProcess::Sync::Take(const StoreSyncClient::Answer& answer) {
  WEFT_RETURN_IF_ERROR(process_->store_->Heard(answer.context));
  process_->run_id_ = answer.context.run_id;
  process_->blobs_->SetServers(answer.instructions.servers);
  for (size_t i = 0; i < reported_; ++i) under_way_.erase(results_[i].order_id);
  results_.erase(results_.begin(), results_.begin() + static_cast<long>(reported_));
  reported_ = 0;
  known_revision_ = answer.instructions.revision;
  if (!answer.instructions.ended_sessions.empty()) {
    WEFT_RETURN_IF_ERROR(process_->store_->EndSessions(answer.instructions.ended_sessions));
  }
  // One after the other.
  Duration delay{};
  for (const NumberedOrder& order : answer.instructions.orders) {
    if (!under_way_.insert(order.id).second) continue;
    delay += process_->world_->Between(Milliseconds(1), Milliseconds(40));
    process_->After(delay,
                    [this, run_id = answer.context.run_id, order] { Execute(run_id, order); });
  }
  return absl::OkStatus();
}

void ParamProcess::Sync::Execute(const std::string& run_id, const NumberedOrder& order) {
  results_.push_back(ExecuteParamOrder(process_->store_.get(), process_->blobs_.get(),
                                       &process_->initial_, run_id, order));
  process_->Log(absl::StrCat("order ", order.id, ": ", results_.back().status.ToString()));
  process_->poll_->Interrupt();
}

}  // namespace weft::simulation
