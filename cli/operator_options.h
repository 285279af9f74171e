// The flags of commands that talk to a running cluster, and the connection that they ask for.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/rpc/security_flags.h"
#include "services/lock_server/grpc_operator_client.h"

namespace CLI {
class App;
}

namespace weft::cli {

struct OperatorFlags {
  std::string address;  // of the lock server
  SecurityFlags security;
};

// A lock server that can be called, and how its stores are spoken to.
struct OperatorConnection {
  std::unique_ptr<GrpcOperatorClient> lock_server;
  SecurityOptions security;

  GrpcOperatorClient* operator->() const { return lock_server.get(); }
  GrpcOperatorClient* get() const { return lock_server.get(); }
};

// ADDRESS and those of security_flags.h.
void AddOperatorFlags(CLI::App& command, OperatorFlags* flags);

// Any role will do: the servers say what it may call.
absl::StatusOr<OperatorConnection> Connect(const OperatorFlags& flags);

}  // namespace weft::cli
