#include "services/common/rpc/monitoring.h"

#include "services/common/file_util.h"
#include "services/common/rpc/grpc_log.h"
#include "services/common/status_macros.h"

namespace weft {

void AddMonitoringFlags(MonitoringFlags* flags, CLI::App* app) {
  app->add_option(
      "--metrics-listen", flags->listen,
      "host:port of /metrics, /healthz and /readyz over HTTP; port 0: any that is free");
  app->add_option("--metrics-address-file", flags->address_file,
                  "written with host:port of the metrics");
  app->add_option_function<std::string>(
         "--log-format",
         [flags](const std::string& word) {
           flags->log_format = word == "json" ? LogFormat::kJson : LogFormat::kText;
         },
         "of the lines on standard error: text for people, json for machines")
      ->check(CLI::IsMember({"text", "json"}))
      ->envname("WEFT_LOG_FORMAT")
      ->default_str("text");
}

Monitoring::Monitoring(const std::string& program, ServerRole role, const std::string& data_dir,
                       const SecurityOptions& security)
    : process_(program, data_dir),
      client_calls_(CountClientCalls(role)),
      server_calls_("weft_rpc_server_duration_seconds",
                    "Calls answered: from arrival to answer, waiting included.") {
  registration_ = registry_.Add([this, tls = security.tls](MetricsPage* page) {
    process_.Write(page);
    server_calls_.Write(page);
    client_calls_.Write(page);
    if (tls == nullptr) return;
    tls->WriteMetrics(page);
    WriteHandshakeMetrics(page);
  });
}

absl::StatusOr<std::unique_ptr<Monitoring>> Monitoring::Start(const MonitoringFlags& flags,
                                                              const std::string& program,
                                                              ServerRole role,
                                                              const std::string& data_dir,
                                                              const SecurityOptions& security) {
  TakeGrpcLog();
  std::unique_ptr<Monitoring> monitoring(new Monitoring(program, role, data_dir, security));
  if (flags.listen.empty()) return monitoring;
  WEFT_ASSIGN_OR_RETURN(
      monitoring->server_,
      MetricsServer::Start(flags.listen, &monitoring->registry_, &monitoring->readiness_));
  const std::string& address = monitoring->server_->address();
  LogInfo("metrics can be scraped", {{"address", address}});
  if (!flags.address_file.empty()) {
    WEFT_RETURN_IF_ERROR(WriteFileAtomically(flags.address_file, address + "\n"));
  }
  return monitoring;
}

}  // namespace weft
