#include "services/partition_server/grpc_blob_client.h"

#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/status_macros.h"
#include "services/partition_server/grpc_bytes_client.h"
#include "services/partition_server/segment_codec.h"
#include "weft/v1/partition_service.grpc.pb.h"

namespace weft {
namespace {

constexpr char kPutMethod[] = "/weft.v1.PartitionService/PutBlob";
constexpr char kGetMethod[] = "/weft.v1.PartitionService/GetBlob";

// What the waiter, the reactor and the slices in gRPC's hands share; whichever is last frees it.
struct StreamResult {
  Mutex mu;
  CondVar changed;
  std::optional<grpc::Status> status ABSL_GUARDED_BY(mu);
  absl::Status failure ABSL_GUARDED_BY(mu);  // what this side did not like
  std::string response ABSL_GUARDED_BY(mu);
  bool memory_held ABSL_GUARDED_BY(mu) = false;
};

// gRPC may still read the memory of slices after a call has ended. Owned by all of them.
class MemoryHold {
 public:
  explicit MemoryHold(std::shared_ptr<StreamResult> result) : result_(std::move(result)) {
    MutexLock lock(&result_->mu);
    result_->memory_held = true;
  }
  ~MemoryHold() {
    MutexLock lock(&result_->mu);
    result_->memory_held = false;
    result_->changed.SignalAll();
  }
  MemoryHold(const MemoryHold&) = delete;
  MemoryHold& operator=(const MemoryHold&) = delete;

 private:
  const std::shared_ptr<StreamResult> result_;
};

// A stream of raw messages; deletes itself when it is done.
class StreamReactor : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  StreamReactor(const CallOptions& options, std::shared_ptr<StreamResult> result)
      : context_(std::make_unique<grpc::ClientContext>()), result_(std::move(result)) {
    context_->set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
    member_ = std::make_unique<CallGroupMember>(options.group, context_.get());
  }

  void Prepare(const std::shared_ptr<grpc::Channel>& channel, const char* method) {
    grpc::GenericStub(channel).PrepareBidiStreamingCall(context_.get(), method, grpc::StubOptions(),
                                                        this);
  }

  void OnDone(const grpc::Status& status) override {
    // The context goes before the waiter wakes (unary_call.h).
    member_.reset();
    context_.reset();
    const std::shared_ptr<StreamResult> result = std::move(result_);
    const grpc::Status copy = status;
    delete this;
    MutexLock lock(&result->mu);
    result->status = copy;
    result->changed.SignalAll();
  }

 protected:
  void Fail(const absl::Status& failure) {
    {
      MutexLock lock(&result_->mu);
      result_->failure = failure;
    }
    context_->TryCancel();
  }
  const std::shared_ptr<StreamResult>& result() const { return result_; }

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<CallGroupMember> member_;
  std::shared_ptr<StreamResult> result_;
};

// Errors: what this side did not like; what the callee says.
absl::Status Wait(StreamResult* result, const CallGroup* group) {
  MutexLock lock(&result->mu);
  while (!result->status.has_value() || result->memory_held) result->changed.Wait(&result->mu);
  if (!result->failure.ok()) return result->failure;
  return StatusOfCall(*result->status, group);
}

class PutReactor : public StreamReactor {
 public:
  // `header`, `info`, `checksums` and `source` must outlive the call.
  PutReactor(const CallOptions& options, std::shared_ptr<StreamResult> result,
             const v1::PutBlobRequest& header, const BlobInfo& info,
             absl::Span<const uint64_t> checksums, SegmentSource source)
      : StreamReactor(options, std::move(result)),
        info_(info),
        checksums_(checksums),
        source_(source),
        hold_(std::make_shared<MemoryHold>(this->result())),
        buffer_(ToBuffer(header)) {}

  void Start() {
    StartRead(&response_);
    StartWrite(&buffer_);
    StartCall();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return;  // the server has answered, or is gone: the status says which
    if (next_ == NumSegments(info_.bytes)) {
      buffer_.Clear();
      hold_.reset();
      StartWritesDone();
      return;
    }
    const int64_t bytes = SegmentBytes(info_.bytes, next_);
    std::vector<grpc::Slice> slices;
    slices.emplace_back(EncodeSegmentPrefix(next_, checksums_[static_cast<size_t>(next_)], bytes));
    for (const absl::string_view piece : source_(next_)) slices.push_back(OwnedSlice(piece, hold_));
    buffer_ = grpc::ByteBuffer(slices.data(), slices.size());
    ++next_;
    StartWrite(&buffer_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    std::string bytes;
    const MessagePieces message(response_);
    for (const absl::string_view piece : message.pieces()) {
      bytes.append(piece.data(), piece.size());
    }
    MutexLock lock(&result()->mu);
    result()->response = std::move(bytes);
  }

 private:
  const BlobInfo info_;
  const absl::Span<const uint64_t> checksums_;
  const SegmentSource source_;
  std::shared_ptr<const MemoryHold> hold_;
  int64_t next_ = 0;
  grpc::ByteBuffer buffer_;
  grpc::ByteBuffer response_;
};

class GetReactor : public StreamReactor {
 public:
  GetReactor(const CallOptions& options, std::shared_ptr<StreamResult> result,
             const v1::GetBlobRequest& request, const ShardName& name, const BlobInfo& info,
             RunFence* fence, SegmentSink sink)
      : StreamReactor(options, std::move(result)),
        name_(name),
        info_(info),
        fence_(fence),
        sink_(sink),
        request_(ToBuffer(request)) {}

  void Start() {
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&buffer_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // The end: of all segments if the status is OK.
      if (next_ == NumSegments(info_.bytes) && has_header_) return;
      MutexLock lock(&result()->mu);
      result()->response = "cut short";
      return;
    }
    absl::Status status;
    {
      const MessagePieces message(buffer_);
      buffer_.Clear();
      status = IsSegment(message.pieces()) ? TakeSegment(message.pieces())
                                           : TakeHeader(message.pieces());
    }
    if (status.ok()) {
      StartRead(&buffer_);
    } else {
      Fail(status);
    }
  }

 private:
  absl::Status TakeHeader(const std::vector<absl::string_view>& message) {
    v1::GetBlobResponse response;
    if (has_header_ || !ParseMessage(message, &response) || !response.has_header()) {
      return absl::InternalError("the answer to GetBlob is no header with segments");
    }
    has_header_ = true;
    const v1::GetBlobHeader& header = response.header();
    WEFT_RETURN_IF_ERROR(fence_->Check(FromProto(header.context())));
    if (BlobInfo{header.size_bytes(), header.xxh3()} == info_) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(ToString(name_), ": has ", header.size_bytes(), " bytes, checksum ",
                     absl::Hex(header.xxh3(), absl::kZeroPad16), "; expected: ", info_.bytes,
                     " bytes, ", absl::Hex(info_.checksum, absl::kZeroPad16)));
  }

  absl::Status TakeSegment(const std::vector<absl::string_view>& message) {
    WEFT_ASSIGN_OR_RETURN(const ParsedSegment segment, ParseSegment(message));
    if (!has_header_ || segment.index != next_ || next_ == NumSegments(info_.bytes)) {
      return absl::InternalError(absl::StrCat(ToString(name_), ": segment ", segment.index,
                                              " came where ", next_, " was expected"));
    }
    ++next_;
    return sink_(segment.index, segment.checksum, segment.data);
  }

  const ShardName name_;
  const BlobInfo info_;
  RunFence* const fence_;
  const SegmentSink sink_;
  bool has_header_ = false;
  int64_t next_ = 0;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer buffer_;
};

}  // namespace

CallOptions GrpcBlobClient::OptionsFor(int64_t bytes) const {
  CallOptions options;
  options.timeout =
      options_.timeout + absl::Seconds(bytes / std::max(int64_t{1}, options_.bytes_per_second));
  options.group = options_.group;
  return options;
}

void GrpcBlobClient::Count(TransferMetrics::Direction direction, int64_t bytes,
                           absl::Time begin) const {
  if (options_.metrics == nullptr) return;
  options_.metrics->Finished(direction, bytes, absl::Now() - begin);
  if (direction == TransferMetrics::Direction::kSent) {
    options_.metrics->AddSent(PeerRole::kPartition, bytes);
  } else {
    options_.metrics->AddReceived(PeerRole::kPartition, bytes);
  }
}

RunContext GrpcBlobClient::context() const {
  RunContext context = fence_->known();
  context.generation.reset();  // blobs are the same in every generation
  return context;
}

absl::StatusOr<Place> GrpcBlobClient::Put(const std::string& address, const ShardName& name,
                                          const BlobInfo& info,
                                          absl::Span<const uint64_t> checksums,
                                          SegmentSource source) {
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, channels_->Get(address));
  v1::PutBlobRequest request;
  v1::PutBlobHeader* const header = request.mutable_header();
  *header->mutable_context() = ToProto(context());
  *header->mutable_name() = ToProto(name);
  header->set_size_bytes(info.bytes);
  header->set_xxh3(info.checksum);
  const absl::Time begin = absl::Now();
  const auto result = std::make_shared<StreamResult>();
  auto* const reactor =
      new PutReactor(OptionsFor(info.bytes), result, request, info, checksums, source);
  reactor->Prepare(channel, kPutMethod);
  reactor->Start();
  WEFT_RETURN_IF_ERROR(Wait(result.get(), options_.group));

  v1::PutBlobResponse response;
  {
    MutexLock lock(&result->mu);
    if (!response.ParseFromString(result->response) || response.store_id() == 0) {
      return absl::InternalError("the answer to PutBlob is none");
    }
  }
  WEFT_RETURN_IF_ERROR(fence_->Check(FromProto(response.context())));
  Count(TransferMetrics::Direction::kSent, info.bytes, begin);
  return Place{response.store_id(), response.durable() ? Incarnation{0} : response.incarnation()};
}

absl::Status GrpcBlobClient::Get(const std::string& address, const ShardName& name,
                                 const BlobInfo& info, SegmentSink sink) {
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, channels_->Get(address));
  v1::GetBlobRequest request;
  *request.mutable_context() = ToProto(context());
  *request.mutable_name() = ToProto(name);
  const absl::Time begin = absl::Now();
  const auto result = std::make_shared<StreamResult>();
  auto* const reactor =
      new GetReactor(OptionsFor(info.bytes), result, request, name, info, fence_, sink);
  reactor->Prepare(channel, kGetMethod);
  reactor->Start();
  WEFT_RETURN_IF_ERROR(Wait(result.get(), options_.group));

  MutexLock lock(&result->mu);
  if (result->response.empty()) {
    Count(TransferMetrics::Direction::kReceived, info.bytes, begin);
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(ToString(name), ": the answer is cut short"));
}

absl::StatusOr<GrpcBlobClient::Manifests> GrpcBlobClient::ListManifests(
    const std::string& address) {
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, channels_->Get(address));
  const auto stub = v1::PartitionService::NewStub(channel);
  const v1::ListManifestsRequest request;
  v1::ListManifestsResponse response;
  WEFT_RETURN_IF_ERROR(UnaryCall(OptionsFor(0), [&](auto* context, auto* reactor) {
    stub->async()->ListManifests(context, &request, &response, reactor);
  }));
  WEFT_RETURN_IF_ERROR(fence_->Check(FromProto(response.context())));
  Manifests manifests;
  for (const v1::StoredManifestInfo& proto : response.manifests()) {
    manifests.emplace_back(FromProto(proto.name()), BlobInfo{proto.size_bytes(), proto.xxh3()});
  }
  return manifests;
}

absl::Status GrpcBlobClient::Fetch(const std::string& address, const ShardName& name,
                                   const BlobInfo& info, BlobUpload* upload) {
  return Get(address, name, info,
             [&](int64_t index, uint64_t checksum, absl::Span<const absl::string_view> pieces) {
               return upload->Append(index, checksum, pieces);
             });
}

}  // namespace weft
