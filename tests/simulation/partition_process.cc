#include "tests/simulation/partition_process.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft::simulation {

PartitionProcess::PartitionProcess(World* world, std::string name, double clock_rate,
                                   bool in_memory, const Addresses* addresses)
    : Process(world, std::move(name), clock_rate),
      addresses_(addresses),
      in_memory_(in_memory),
      store_id_(world->NewId()) {
  memory_.durable = false;
}

absl::Status PartitionProcess::Begin() {
  constexpr BlobStore::Options kOptions = {.reserve_bytes = 0};
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<BlobStore> disk,
                        BlobStore::Open(std::make_unique<DiskStorage>(&disk_), kOptions));
  std::unique_ptr<BlobStore> memory;
  if (in_memory_) {
    WEFT_ASSIGN_OR_RETURN(memory,
                          BlobStore::Open(std::make_unique<DiskStorage>(&memory_), kOptions));
  }
  store_ =
      std::make_unique<PartitionStore>(StoreFolder::InMemory(store_id_, world_->NewId(), run_id_),
                                       std::move(disk), std::move(memory));
  orders_ = std::make_unique<StoreOrders>(store_.get(), &fetcher_);
  sync_ = std::make_unique<PartitionSync>(store_.get(), orders_.get(), &executor_, name(), [this] {
    run_id_ = store_->context().run_id;
    poll_->Interrupt();
  });
  const auto change = [this](StoreInstructions* instructions) {
    if (sweeps_all && instructions->keep_list.has_value()) {
      instructions->keep_list->high_water = UINT64_MAX;
    }
  };
  poll_ = std::make_unique<StorePoll>(this, addresses_->lock, sync_.get(), StoreRunInfo(), change,
                                      [this](const std::string& why) { Exit(why); });
  return absl::OkStatus();
}

void PartitionProcess::End() {
  if (store_ != nullptr) run_id_ = store_->context().run_id;
  uploads_.clear();
  poll_.reset();
  sync_.reset();
  orders_.reset();
  store_.reset();
  disk_.Crash();
  memory_.blobs.clear();
  memory_.Crash();
}

void PartitionProcess::Terminate() {
  if (!up()) return;
  if (!in_memory_) return Kill();
  sync_->PersistAll().IgnoreError();
  poll_->Last([this] { Exit("terminated"); });
}

void PartitionProcess::LoseDisk() {
  Log("has lost its disk");
  Kill();
  disk_.blobs.clear();
  disk_.Crash();
  run_id_.clear();
  lost_.insert(store_id_);
  store_id_ = world_->NewId();
}

void PartitionProcess::Fill(int64_t spare) {
  for (BlobDisk* disk : {&disk_, &memory_}) disk->capacity = disk->used + spare;
}

void PartitionProcess::MakeRoom() {
  for (BlobDisk* disk : {&disk_, &memory_}) disk->capacity = BlobDisk().capacity;
}

const BlobDisk::Blob* PartitionProcess::At(const Place& place, const ShardName& name) const {
  if (place.store_id != store_id_) return nullptr;
  const BlobDisk::Blob* blob = disk_.Find(name);
  if (blob != nullptr || place.incarnation == 0) return blob;
  const bool lives = up() && store_ != nullptr && store_->incarnation() == place.incarnation;
  return lives ? memory_.Find(name) : nullptr;
}

absl::StatusOr<std::unique_ptr<BlobUpload>> PartitionProcess::Stage(const RunContext& context,
                                                                    const ShardName& name,
                                                                    const BlobMessage& blob) {
  WEFT_RETURN_IF_ERROR(store_->Check(context));
  const absl::StatusOr<BlobInfo> here = store_->Stat(name);
  if (here.ok() && *here == blob.info) return std::unique_ptr<BlobUpload>();
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<BlobUpload> upload, store_->BeginUpload(name, blob.info));
  for (size_t i = 0; i < blob.segments.size(); ++i) {
    WEFT_RETURN_IF_ERROR(
        upload->Append(static_cast<int64_t>(i), blob.checksums[i], {blob.segments[i]}));
  }
  return upload;
}

void PartitionProcess::Put(const RunContext& context, const ShardName& name,
                           const BlobMessage& blob, const Reply<Told<Place>>& reply) {
  absl::StatusOr<std::unique_ptr<BlobUpload>> upload = Stage(context, name, blob);
  if (!upload.ok()) return reply(upload.status());
  const auto answer = [this, name, reply] {
    reply(Told<Place>{store_->context(), store_->PlaceOf(name)});
  };
  if (*upload == nullptr) return answer();
  // The last bytes take their time.
  const uint64_t id = ++last_upload_;
  uploads_[id] = *std::move(upload);
  After(world_->Between(Duration{}, Milliseconds(30)), [this, id, answer, reply] {
    const absl::Status published = uploads_.at(id)->Publish();
    uploads_.erase(id);
    if (!published.ok()) return reply(published);
    answer();
  });
}

void PartitionProcess::Get(const RunContext& context, const ShardName& name,
                           const Reply<Told<BlobMessage>>& reply) {
  const absl::StatusOr<BlobMessage> blob = GetNow(context, name);
  if (!blob.ok()) return reply(blob.status());
  reply(Told<BlobMessage>{store_->context(), *blob});
}

absl::StatusOr<Place> PartitionProcess::PutNow(const RunContext& context, const ShardName& name,
                                               const BlobMessage& blob) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<BlobUpload> upload, Stage(context, name, blob));
  if (upload != nullptr) WEFT_RETURN_IF_ERROR(upload->Publish());
  return store_->PlaceOf(name);
}

absl::StatusOr<BlobMessage> PartitionProcess::GetNow(const RunContext& context,
                                                     const ShardName& name) {
  WEFT_RETURN_IF_ERROR(store_->Check(context));
  WEFT_ASSIGN_OR_RETURN(const BlobReader reader, store_->OpenReader(name));
  BlobMessage blob;
  blob.info = reader.info();
  for (int64_t i = 0; i < reader.num_segments(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const SegmentBuffer segment, reader.Read(i));
    blob.checksums.push_back(reader.checksum(i));
    blob.segments.emplace_back(segment.bytes.data(), segment.bytes.size());
  }
  return blob;
}

absl::Status PartitionProcess::Fetcher::Fetch(const std::string& address, const ShardName& name,
                                              const BlobInfo& info, BlobUpload* upload) {
  const auto found = process_->addresses_->partitions.find(address);
  if (found == process_->addresses_->partitions.end() ||
      !process_->world_->Reaches(process_, found->second)) {
    return absl::UnavailableError("nobody answers");
  }
  RunContext context = process_->store_->context();
  context.generation.reset();
  WEFT_ASSIGN_OR_RETURN(const BlobMessage blob, found->second->GetNow(context, name));
  if (blob.info != info) return absl::DataLossError("another blob");
  for (size_t i = 0; i < blob.segments.size(); ++i) {
    WEFT_RETURN_IF_ERROR(
        upload->Append(static_cast<int64_t>(i), blob.checksums[i], {blob.segments[i]}));
  }
  return absl::OkStatus();
}

}  // namespace weft::simulation
