#include "services/common/rpc/channel_pool.h"

#include <grpc/impl/codegen/grpc_types.h>
#include <grpcpp/create_channel.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/common/rpc/rpc_settings.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

absl::Status CheckAddress(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return absl::OkStatus();
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" is not an address: host:port is"));
  }
  return absl::OkStatus();
}

}  // namespace

grpc::ChannelArguments MakeChannelArguments(int index) {
  grpc::ChannelArguments arguments;
  // Channels of equal arguments would share a connection.
  arguments.SetInt("weft.channel_index", index);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  // A server that is back after a second should not be waited for two minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // How long an attempt may take, in spite of its name: a TLS handshake between busy machines.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 3000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Peers are ours: no proxy of the environment stands between.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address, Role peer,
                                                           const SecurityOptions& security,
                                                           int index) {
  WEFT_RETURN_IF_ERROR(CheckAddress(address));
  WEFT_ASSIGN_OR_RETURN(const auto credentials, MakeChannelCredentials(address, peer, security));
  grpc::ChannelArguments arguments = MakeChannelArguments(index);
  // The name that is asked for is the role's; servers would complain in their logs about others.
  if (security.tls != nullptr) arguments.SetSslTargetNameOverride(RoleDnsName(peer));
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

absl::StatusOr<ChannelPool::PeerChannels*> ChannelPool::Find(const std::string& address) {
  PeerChannels& peer = peers_[address];
  for (int index = static_cast<int>(peer.channels.size()); index < options_.connections; ++index) {
    absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
        MakeChannel(address, options_.peer, options_.security, index);
    if (!channel.ok()) {
      peers_.erase(address);
      return channel.status();
    }
    peer.channels.push_back(*std::move(channel));
  }
  return &peer;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelPool::Get(const std::string& address) {
  MutexLock lock(&mu_);
  WEFT_ASSIGN_OR_RETURN(PeerChannels* const peer, Find(address));
  return peer->channels[peer->next++ % peer->channels.size()];
}

absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> ChannelPool::GetAll(
    const std::string& address) {
  MutexLock lock(&mu_);
  WEFT_ASSIGN_OR_RETURN(PeerChannels* const peer, Find(address));
  return peer->channels;
}

void ChannelPool::Forget(const std::string& address) {
  MutexLock lock(&mu_);
  peers_.erase(address);
}

}  // namespace weft
