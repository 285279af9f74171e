#include "services/common/rpc/security_flags.h"

#include <CLI/App.hpp>

#include "services/common/status_macros.h"

namespace weft {

void AddSecurityFlags(CLI::App* app, SecurityFlags* flags) {
  const auto add = [app](const std::string& name, std::string* file, const std::string& about) {
    return app->add_option(name, *file, about)->type_name("FILE")->default_str("");
  };
  CLI::Option* const certificate =
      add("--tls-cert", &flags->tls.certificate, "certificate, PEM; its DNS names are its roles")
          ->envname("WEFT_TLS_CERT");
  CLI::Option* const key =
      add("--tls-key", &flags->tls.key, "its key, PEM")->envname("WEFT_TLS_KEY");
  CLI::Option* const ca =
      add("--tls-ca", &flags->tls.ca, "PEM of the CAs whose certificates are believed")
          ->envname("WEFT_TLS_CA");
  certificate->needs(key, ca);
  key->needs(certificate, ca);
  ca->needs(certificate, key);
  app->add_flag("--insecure", flags->insecure, "plain text beyond this machine")
      ->excludes(certificate, key, ca);
}

absl::StatusOr<SecurityOptions> MakeSecurityOptions(const SecurityFlags& flags, RoleSet needed) {
  SecurityOptions options;
  options.allow_plain_text = flags.insecure;
  if (flags.tls.certificate.empty()) return options;
  WEFT_ASSIGN_OR_RETURN(options.tls, TlsIdentity::Load(flags.tls, needed));
  return options;
}

std::vector<std::string> SecurityArguments(const SecurityFlags& flags) {
  std::vector<std::string> arguments;
  if (!flags.tls.certificate.empty()) {
    arguments = {"--tls-cert", flags.tls.certificate, "--tls-key", flags.tls.key,
                 "--tls-ca",   flags.tls.ca};
  }
  if (flags.insecure) arguments.push_back("--insecure");
  return arguments;
}

}  // namespace weft
