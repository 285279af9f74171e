#include "cli/operator_options.h"

#include <CLI/App.hpp>
#include <utility>

#include "services/common/status_macros.h"

namespace weft::cli {

void AddOperatorFlags(CLI::App& command, OperatorFlags* flags) {
  command.add_option("ADDRESS", flags->address, "The lock server's host:port")->required();
  AddSecurityFlags(&command, &flags->security);
}

absl::StatusOr<OperatorConnection> Connect(const OperatorFlags& flags) {
  OperatorConnection connection;
  WEFT_ASSIGN_OR_RETURN(connection.security, MakeSecurityOptions(flags.security, {}));
  GrpcOperatorClient::Options options;
  options.address = flags.address;
  options.security = connection.security;
  WEFT_ASSIGN_OR_RETURN(connection.lock_server, GrpcOperatorClient::Create(std::move(options)));
  return connection;
}

}  // namespace weft::cli
