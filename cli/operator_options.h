// The flags of commands that talk to a running cluster, and the connection that they ask for.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/lock_server/grpc_operator_client.h"

namespace CLI {
class App;
}

namespace weft::cli {

struct OperatorFlags {
  std::string address;  // of the lock server
  bool insecure = false;
};

// ADDRESS and --insecure.
void AddOperatorFlags(CLI::App& command, OperatorFlags* flags);

absl::StatusOr<std::unique_ptr<GrpcOperatorClient>> Connect(const OperatorFlags& flags);

}  // namespace weft::cli
