// ChannelPool makes and keeps channels to peers, several connections to each, so that bulk streams
// do not share one.
//
// Windows are for bulk transfer (16 MiB a stream, no BDP probe), reconnecting is quick, a peer that
// falls silent is noticed within half a minute. gRPC's limit of 4 MB a message stays in place.
//
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "services/common/mutex.h"
#include "services/common/rpc/credentials.h"

namespace weft {

class ChannelPool {
 public:
  struct Options {
    int connections = 1;  // to each peer
    SecurityOptions security;
    Role peer = Role::kPartitionServer;  // all of them
  };

  explicit ChannelPool(const Options& options) : options_(options) {}

  // One of the peer's channels, in turn. `address`: host:port. Connects when it is first used.
  // Errors: InvalidArgument for an address without port; FailedPrecondition: plain text beyond this
  // machine.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Get(const std::string& address)
      ABSL_LOCKS_EXCLUDED(mu_);
  // All of them.
  absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> GetAll(const std::string& address)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The peer has moved: its channels go when nobody uses them any more.
  void Forget(const std::string& address) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct PeerChannels {
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    size_t next = 0;
  };

  absl::StatusOr<PeerChannels*> Find(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Mutex mu_;
  absl::flat_hash_map<std::string, PeerChannels> peers_ ABSL_GUARDED_BY(mu_);
};

// What every channel of ours is made with. Channels with different indices have connections of
// their own.
grpc::ChannelArguments MakeChannelArguments(int index);

// One channel outside any pool, to a server of the role `peer`.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address, Role peer,
                                                           const SecurityOptions& security,
                                                           int index = 0);

}  // namespace weft
