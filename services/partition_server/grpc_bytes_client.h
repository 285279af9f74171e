// Between gRPC's byte buffers and what logic uses: shared by the partition service and its client.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

// The pieces of a message, which live as long as this.
class MessagePieces {
 public:
  explicit MessagePieces(const grpc::ByteBuffer& buffer) {
    if (!buffer.Dump(&slices_).ok()) return;
    for (const grpc::Slice& slice : slices_) {
      pieces_.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }

  const std::vector<absl::string_view>& pieces() const { return pieces_; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<absl::string_view> pieces_;
};

// False when the bytes are not such a message. For small messages: it copies.
inline bool ParseMessage(const std::vector<absl::string_view>& pieces,
                         google::protobuf::MessageLite* message) {
  std::string bytes;
  for (const absl::string_view piece : pieces) bytes.append(piece.data(), piece.size());
  return message->ParseFromString(bytes);
}

inline grpc::ByteBuffer ToBuffer(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// A slice of memory that is kept by `owner` until gRPC needs it no longer: nothing is copied.
inline grpc::Slice OwnedSlice(absl::string_view bytes, std::shared_ptr<const void> owner) {
  return grpc::Slice(
      const_cast<char*>(bytes.data()), bytes.size(),
      [](void* held) { delete static_cast<std::shared_ptr<const void>*>(held); },
      new std::shared_ptr<const void>(std::move(owner)));
}

}  // namespace weft
