#include "cli/operator_options.h"

#include <CLI/App.hpp>
#include <utility>

namespace weft::cli {

void AddOperatorFlags(CLI::App& command, OperatorFlags* flags) {
  command.add_option("ADDRESS", flags->address, "The lock server's host:port")->required();
  command.add_flag("--insecure", flags->insecure, "Plain text beyond this machine");
}

absl::StatusOr<std::unique_ptr<GrpcOperatorClient>> Connect(const OperatorFlags& flags) {
  GrpcOperatorClient::Options options;
  options.address = flags.address;
  options.security.allow_plain_text = flags.insecure;
  return GrpcOperatorClient::Create(std::move(options));
}

}  // namespace weft::cli
