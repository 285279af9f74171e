#include "services/partition_server/partition_service_impl.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/rpc/grpc_status.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/rpc/rpc_metrics.h"
#include "services/common/status_macros.h"
#include "services/partition_server/grpc_bytes_client.h"
#include "services/partition_server/partition_shards.h"
#include "services/partition_server/segment_codec.h"

namespace weft {

grpc::Status PartitionServiceImpl::Answer(const absl::Status& status) {
  const absl::Status failed = absl::IsInternal(status) ? store_->write_status() : absl::OkStatus();
  if (!failed.ok()) {
    if (on_failure_ != nullptr) on_failure_();
    return ToGrpcStatus(absl::UnavailableError(absl::StrCat(
        "this partition server can write no more, and ends: ", std::string(failed.message()))));
  }
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      ++stats_.malformed;
      break;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnavailable:
      ++stats_.stale_calls;
      break;
    case absl::StatusCode::kFailedPrecondition:
      ++stats_.wrong_runs;
      break;
    case absl::StatusCode::kAlreadyExists:
      ++stats_.other_contents;
      break;
    case absl::StatusCode::kResourceExhausted:
      ++stats_.no_room;
      break;
    default:
      break;
  }
  return ToGrpcStatus(status);
}

void PartitionServiceImpl::Received(PeerRole peer, int64_t bytes) {
  if (transfers_ != nullptr) transfers_->AddReceived(peer, bytes);
}

void PartitionServiceImpl::Sent(PeerRole peer, int64_t bytes) {
  if (transfers_ != nullptr) transfers_->AddSent(peer, bytes);
}

void PartitionServiceImpl::WriteMetrics(MetricsPage* page) const {
  page->AddCounter("weft_partition_stored_blobs_total", "Uploads published.", {},
                   static_cast<double>(stats_.blobs_stored));
  page->AddCounter("weft_partition_sent_blobs_total", "Blobs sent whole.", {},
                   static_cast<double>(stats_.blobs_sent));
  const auto refused = [&](absl::string_view reason, const std::atomic<int64_t>& calls) {
    page->AddCounter("weft_partition_refused_calls_total", "Calls refused; nothing was changed.",
                     {{"reason", reason}}, static_cast<double>(calls));
  };
  refused("malformed", stats_.malformed);
  refused("wrong_checksum", stats_.wrong_checksums);
  refused("other_content", stats_.other_contents);
  refused("no_room", stats_.no_room);
  refused("wrong_run", stats_.wrong_runs);
  refused("stale_call", stats_.stale_calls);
}

// --- PutBlob ---

// Reads one message, has a worker take it, reads the next: the window of the stream is what is read
// ahead.
class PartitionServiceImpl::PutReactor : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  PutReactor(PartitionServiceImpl* service, PeerRole caller, grpc::ByteBuffer* response)
      : service_(service), caller_(caller), response_(response) {
    StartRead(&buffer_);
  }

  void OnReadDone(bool ok) override {
    service_->workers_->Submit([this, ok] { ok ? Take() : End(); });
  }
  void OnDone() override { delete this; }

 private:
  // After Finish this may be gone.
  void Take() {
    absl::Status status;
    {
      const MessagePieces message(buffer_);
      buffer_.Clear();
      status = IsSegment(message.pieces()) ? TakeSegment(message.pieces())
                                           : TakeHeader(message.pieces());
    }
    if (!status.ok()) {
      Refuse(status);
    } else if (is_there_) {
      Succeed();
    } else {
      StartRead(&buffer_);
    }
  }

  absl::Status TakeHeader(const std::vector<absl::string_view>& message) {
    v1::PutBlobRequest request;
    if (upload_ != nullptr || !ParseMessage(message, &request) || !request.has_header()) {
      return absl::InvalidArgumentError("a stream is one header, then segments");
    }
    const v1::PutBlobHeader& header = request.header();
    WEFT_RETURN_IF_ERROR(service_->store_->Check(FromProto(header.context())));
    name_ = FromProto(header.name());
    const BlobInfo info = {header.size_bytes(), header.xxh3()};
    const absl::StatusOr<BlobInfo> here = service_->store_->Stat(name_);
    is_there_ = here.ok() && *here == info;
    if (is_there_) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(upload_, service_->store_->BeginUpload(name_, info));
    return absl::OkStatus();
  }

  absl::Status TakeSegment(const std::vector<absl::string_view>& message) {
    if (upload_ == nullptr) {
      return absl::InvalidArgumentError("a stream is one header, then segments");
    }
    WEFT_ASSIGN_OR_RETURN(const ParsedSegment segment, ParseSegment(message));
    const absl::Status status = upload_->Append(segment.index, segment.checksum, segment.data);
    if (absl::IsDataLoss(status)) ++service_->stats_.wrong_checksums;
    if (status.ok()) {
      size_t bytes = 0;
      for (const absl::string_view piece : segment.data) bytes += piece.size();
      service_->Received(caller_, static_cast<int64_t>(bytes));
    }
    return status;
  }

  // The client has sent all, or is gone: an upload that is cut short is not published.
  void End() {
    if (upload_ == nullptr) {
      Refuse(absl::InvalidArgumentError("a stream is one header, then segments"));
      return;
    }
    const absl::Status status = upload_->Publish();
    if (!status.ok()) {
      if (absl::IsDataLoss(status)) ++service_->stats_.wrong_checksums;
      Refuse(status);
      return;
    }
    ++service_->stats_.blobs_stored;
    Succeed();
  }

  void Succeed() {
    upload_.reset();
    const PartitionStore& store = *service_->store_;
    v1::PutBlobResponse response;
    *response.mutable_context() = ToProto(store.context());
    response.set_store_id(store.store_id());
    response.set_incarnation(store.incarnation());
    response.set_durable(store.PlaceOf(name_).incarnation == 0);
    *response_ = ToBuffer(response);
    Finish(grpc::Status::OK);
  }

  void Refuse(const absl::Status& status) {
    upload_.reset();
    Finish(service_->Answer(status));
  }

  PartitionServiceImpl* const service_;
  const PeerRole caller_;
  grpc::ByteBuffer* const response_;
  grpc::ByteBuffer buffer_;
  ShardName name_;
  std::unique_ptr<BlobUpload> upload_;
  bool is_there_ = false;
};

grpc::ServerReadReactor<grpc::ByteBuffer>* PartitionServiceImpl::PutBlob(
    grpc::CallbackServerContext* context, grpc::ByteBuffer* response) {
  return new PutReactor(this, CallerRole(*context), response);  // deletes itself
}

// --- GetBlob ---

class PartitionServiceImpl::GetReactor : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  GetReactor(PartitionServiceImpl* service, PeerRole caller, const grpc::ByteBuffer& request)
      : service_(service), caller_(caller) {
    service_->workers_->Submit([this, request] {
      const absl::Status status = Begin(request);
      if (!status.ok()) Finish(service_->Answer(status));
    });
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the reader is gone"));
    } else if (on_disk_) {
      service_->workers_->Submit([this] { Next(); });
    } else {
      Next();  // nothing blocks in memory
    }
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Begin(const grpc::ByteBuffer& bytes) {
    v1::GetBlobRequest request;
    if (!ParseMessage(MessagePieces(bytes).pieces(), &request)) {
      return absl::InvalidArgumentError("this is no GetBlobRequest");
    }
    WEFT_RETURN_IF_ERROR(service_->store_->Check(FromProto(request.context())));
    WEFT_ASSIGN_OR_RETURN(BlobReader reader,
                          service_->store_->OpenReader(FromProto(request.name())));
    if (request.first_segment() > reader.num_segments()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the blob has ", reader.num_segments(), " segments"));
    }
    next_ = request.first_segment();
    on_disk_ = service_->store_->PlaceOf(FromProto(request.name())).incarnation == 0;
    v1::GetBlobResponse response;
    v1::GetBlobHeader* const header = response.mutable_header();
    *header->mutable_context() = ToProto(service_->store_->context());
    header->set_size_bytes(reader.info().bytes);
    header->set_xxh3(reader.info().checksum);
    reader_ = std::make_unique<BlobReader>(std::move(reader));
    buffer_ = ToBuffer(response);
    StartWrite(&buffer_);
    return absl::OkStatus();
  }

  void Next() {
    if (next_ == reader_->num_segments()) {
      ++service_->stats_.blobs_sent;
      Finish(grpc::Status::OK);
      return;
    }
    absl::StatusOr<SegmentBuffer> segment = reader_->Read(next_);
    if (!segment.ok()) {
      Finish(service_->Answer(segment.status()));
      return;
    }
    const auto bytes = static_cast<int64_t>(segment->bytes.size());
    const grpc::Slice slices[] = {
        grpc::Slice(EncodeSegmentPrefix(next_, reader_->checksum(next_), bytes)),
        OwnedSlice(segment->bytes, std::move(segment->owner))};
    buffer_ = grpc::ByteBuffer(slices, 2);
    service_->Sent(caller_, bytes);
    ++next_;
    StartWrite(&buffer_);
  }

  PartitionServiceImpl* const service_;
  const PeerRole caller_;
  std::unique_ptr<BlobReader> reader_;
  bool on_disk_ = false;
  int64_t next_ = 0;
  grpc::ByteBuffer buffer_;
};

grpc::ServerWriteReactor<grpc::ByteBuffer>* PartitionServiceImpl::GetBlob(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return new GetReactor(this, CallerRole(*context), *request);  // deletes itself
}

// --- unary calls ---

template <typename Call>
grpc::ServerUnaryReactor* PartitionServiceImpl::Run(grpc::CallbackServerContext* context,
                                                    WorkPool* pool, Call call) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  pool->Submit([this, reactor, call] { reactor->Finish(Answer(call())); });
  return reactor;
}

grpc::ServerUnaryReactor* PartitionServiceImpl::StatBlob(grpc::CallbackServerContext* context,
                                                         const v1::StatBlobRequest* request,
                                                         v1::StatBlobResponse* response) {
  return Run(context, workers_, [=, this] { return Stat(*request, response); });
}

grpc::ServerUnaryReactor* PartitionServiceImpl::CopyBlob(grpc::CallbackServerContext* context,
                                                         const v1::CopyBlobRequest* request,
                                                         v1::CopyBlobResponse* response) {
  return Run(context, background_, [=, this] { return Copy(*request, response); });
}

grpc::ServerUnaryReactor* PartitionServiceImpl::ReadRows(grpc::CallbackServerContext* context,
                                                         const v1::ReadRowsRequest* request,
                                                         v1::ReadRowsResponse* response) {
  return Run(context, workers_, [=, this, caller = CallerRole(*context)] {
    const absl::Status status = Read(*request, response);
    if (status.ok()) Sent(caller, static_cast<int64_t>(response->values().size()));
    return status;
  });
}

grpc::ServerUnaryReactor* PartitionServiceImpl::ListManifests(grpc::CallbackServerContext* context,
                                                              const v1::ListManifestsRequest*,
                                                              v1::ListManifestsResponse* response) {
  return Run(context, workers_, [=, this] { return List(response); });
}

absl::Status PartitionServiceImpl::List(v1::ListManifestsResponse* response) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<BlobEntry> manifests, store_->Manifests());
  *response->mutable_context() = ToProto(store_->context());
  for (const BlobEntry& manifest : manifests) {
    v1::StoredManifestInfo* const proto = response->add_manifests();
    *proto->mutable_name() = ToProto(manifest.name);
    proto->set_size_bytes(manifest.info.bytes);
    proto->set_xxh3(manifest.info.checksum);
  }
  return absl::OkStatus();
}

absl::Status PartitionServiceImpl::Stat(const v1::StatBlobRequest& request,
                                        v1::StatBlobResponse* response) {
  WEFT_RETURN_IF_ERROR(store_->Check(FromProto(request.context())));
  const ShardName name = FromProto(request.name());
  WEFT_ASSIGN_OR_RETURN(const BlobInfo info,
                        request.verify() ? store_->Verify(name) : store_->Stat(name));
  *response->mutable_context() = ToProto(store_->context());
  response->set_size_bytes(info.bytes);
  response->set_xxh3(info.checksum);
  *response->mutable_place() = ToProto(store_->PlaceOf(name));
  return absl::OkStatus();
}

absl::Status PartitionServiceImpl::Copy(const v1::CopyBlobRequest& request,
                                        v1::CopyBlobResponse* response) {
  WEFT_RETURN_IF_ERROR(store_->Check(FromProto(request.context())));
  const ShardInfo shard = FromProto(request.shard());
  WEFT_ASSIGN_OR_RETURN(
      const Place place,
      orders_->Copy({FromProto(request.version()), shard.shard}, {shard.size_bytes, shard.xxh3},
                    {request.addresses().begin(), request.addresses().end()}));
  *response->mutable_context() = ToProto(store_->context());
  *response->mutable_place() = ToProto(place);
  return absl::OkStatus();
}

absl::Status PartitionServiceImpl::Read(const v1::ReadRowsRequest& request,
                                        v1::ReadRowsResponse* response) {
  WEFT_RETURN_IF_ERROR(store_->Check(FromProto(request.context())));
  const int64_t dimension = request.dimension();
  const int64_t first = request.first_column();
  const int64_t columns = request.num_columns() > 0 ? int64_t{request.num_columns()}
                                                    : std::max(int64_t{0}, dimension - first);
  if (dimension == 0 || columns > dimension || first > dimension - columns) {
    return absl::OutOfRangeError(
        absl::StrCat("columns ", first, " to ", first + columns, " of ", dimension));
  }
  const auto row_bytes = static_cast<int64_t>(sizeof(float)) * columns;
  if (row_bytes > kSegmentBytes || request.rows_size() > kSegmentBytes / row_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(request.rows_size(), " rows of ", row_bytes,
                                                   " bytes are too much for one answer"));
  }
  const ShardName name = FromProto(request.name());
  WEFT_ASSIGN_OR_RETURN(BlobReader reader, store_->OpenReader(name));
  const int64_t num_rows = reader.info().bytes / ShardBytes(1, dimension);
  if (ShardBytes(num_rows, dimension) != reader.info().bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        ToString(name), ": ", reader.info().bytes, " bytes are no rows of ", dimension, " values"));
  }
  std::string* const values = response->mutable_values();
  values->resize(static_cast<size_t>(row_bytes * request.rows_size()));
  char* out = values->data();
  for (const int64_t row : request.rows()) {
    if (row < 0 || row >= num_rows) {
      return absl::OutOfRangeError(absl::StrCat(ToString(name), ": has no row ", row));
    }
    const auto offset = static_cast<int64_t>(sizeof(float)) * (row * dimension + first);
    WEFT_RETURN_IF_ERROR(reader.ReadBytes(offset, {out, static_cast<size_t>(row_bytes)}));
    out += row_bytes;
  }
  *response->mutable_context() = ToProto(store_->context());
  return absl::OkStatus();
}

}  // namespace weft
