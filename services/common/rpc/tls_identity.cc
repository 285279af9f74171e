#include "services/common/rpc/tls_identity.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/server_context.h>
#include <sys/stat.h>

#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/common/logging.h"
#include "services/common/rpc/grpc_status.h"
#include "services/common/rpc/method_roles.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);
constexpr unsigned kProviderSeconds = 1;
// Of refused calls, however many there are.
constexpr absl::Duration kTellEvery = absl::Seconds(1);

RoleSet RolesOf(const std::vector<grpc::string_ref>& dns_names) {
  RoleSet roles;
  for (const grpc::string_ref& name : dns_names) AddRoleOf({name.data(), name.size()}, &roles);
  return roles;
}

RoleSet RolesOf(const grpc::AuthContext& peer) {
  return RolesOf(peer.FindPropertyValues(GRPC_PEER_DNS_PROPERTY_NAME));
}

}  // namespace

RoleSet CallerRoles(const grpc::CallbackServerContext& context) {
  return RolesOf(*context.auth_context());
}

struct TlsIdentity::Refusals {
  Counter calls_of_role;
  Counter unknown_calls;
  Counter servers;
};

namespace {

// On a client: the server carries the role that is meant to be called.
class ServerRoleVerifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  // `count`: called for each server that is refused.
  ServerRoleVerifier(Role role, std::function<void()> count)
      : role_(role), count_(std::move(count)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* sync_status) override {
    const RoleSet roles = RolesOf(request->dns_names());
    if (!roles.Has(role_)) {
      count_();
      *sync_status = grpc::Status(
          grpc::StatusCode::PERMISSION_DENIED,
          absl::StrCat("its certificate carries ", ToString(roles), ", not ", RoleWord(role_)));
    }
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const Role role_;
  const std::function<void()> count_;
};

// On a server: asked for every call, before its handler.
class CallerRoleProcessor : public grpc::AuthMetadataProcessor {
 public:
  // `count`: called with each refusal; gives how many there have been.
  explicit CallerRoleProcessor(std::function<double(const absl::Status&)> count)
      : count_(std::move(count)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* caller, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    const absl::string_view method =
        path == metadata.end() ? absl::string_view()
                               : absl::string_view(path->second.data(), path->second.size());
    const absl::Status status = CheckMayCall(method, RolesOf(*caller));
    if (!status.ok()) Tell(status);
    return ToGrpcStatus(status);
  }

 private:
  void Tell(const absl::Status& refusal) {
    const auto refused = static_cast<int64_t>(count_(refusal));
    {
      MutexLock lock(&mu_);
      const absl::Time now = absl::Now();
      if (now < told_ + kTellEvery) return;
      told_ = now;
    }
    LogWarning("call refused", {{"refused_so_far", refused}, {"cause", refusal.message()}});
  }

  const std::function<double(const absl::Status&)> count_;
  Mutex mu_;
  absl::Time told_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

// Changes when a file does, a link to it, or a folder above.
std::vector<int64_t> Fingerprint(const TlsFiles& files) {
  std::vector<int64_t> print;
  for (const std::string& file : {files.certificate, files.key, files.ca}) {
    struct stat info = {};
    if (stat(file.c_str(), &info) != 0) info = {};
    print.insert(print.end(), {static_cast<int64_t>(info.st_ino), int64_t{info.st_size},
                               int64_t{info.st_mtim.tv_sec}, int64_t{info.st_mtim.tv_nsec}});
  }
  return print;
}

std::vector<LogField> Describe(const TlsFiles& files, const TlsMaterial& material) {
  return {{"file", files.certificate},
          {"roles", absl::StrCat("(", ToString(material.roles), ")")},
          {"serial", material.serial},
          {"until", absl::FormatTime(material.valid_until, absl::UTCTimeZone())}};
}

}  // namespace

absl::StatusOr<std::shared_ptr<TlsIdentity>> TlsIdentity::Load(const TlsFiles& files,
                                                               RoleSet needed) {
  std::vector<int64_t> print = Fingerprint(files);
  WEFT_ASSIGN_OR_RETURN(TlsMaterial material, ReadTlsFiles(files, needed, absl::Now()));
  std::shared_ptr<TlsIdentity> identity(new TlsIdentity(files, needed));
  WEFT_RETURN_IF_ERROR(identity->Take(material));
  const std::string path = identity->identity_.path();
  identity->provider_ = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      path, path, identity->cas_.path(), kProviderSeconds);
  identity->MakeChannelCredentials();
  identity->looks_ =
      std::thread(&TlsIdentity::LookForEver, identity.get(), std::move(material), std::move(print));
  return identity;
}

TlsIdentity::TlsIdentity(const TlsFiles& files, RoleSet needed)
    : files_(files), needed_(needed), refusals_(std::make_shared<Refusals>()) {}

TlsIdentity::~TlsIdentity() {
  ended_.Cancel();
  if (looks_.joinable()) looks_.join();
}

absl::Status TlsIdentity::Take(const TlsMaterial& material) {
  WEFT_RETURN_IF_ERROR(
      identity_.Replace(absl::StrCat(material.private_key, "\n", material.certificate_chain)));
  WEFT_RETURN_IF_ERROR(cas_.Replace(material.ca));
  MutexLock lock(&mu_);
  valid_until_ = material.valid_until;
  return absl::OkStatus();
}

void TlsIdentity::SetFilesStatus(const absl::Status& status) {
  MutexLock lock(&mu_);
  files_status_ = status;
}

absl::Status TlsIdentity::files_status() const {
  MutexLock lock(&mu_);
  return files_status_;
}

void TlsIdentity::WriteMetrics(MetricsPage* page) const {
  absl::Time valid_until;
  bool usable = false;
  {
    MutexLock lock(&mu_);
    valid_until = valid_until_;
    usable = files_status_.ok();
  }
  page->AddGauge("weft_tls_certificate_expiry_timestamp_seconds",
                 "When the certificate in use expires, since 1970.", {},
                 absl::ToDoubleSeconds(valid_until - absl::UnixEpoch()));
  page->AddGauge("weft_tls_files_usable",
                 "1: the certificate files are used as they are; 0: older ones are.", {},
                 usable ? 1 : 0);
  const auto refused_calls = [&](absl::string_view reason, const Counter& count) {
    page->AddCounter("weft_tls_refused_calls_total", "Calls that this server refused.",
                     {{"reason", reason}}, count.value());
  };
  refused_calls("role", refusals_->calls_of_role);
  refused_calls("unknown_method", refusals_->unknown_calls);
  page->AddCounter("weft_tls_refused_servers_total",
                   "Connections that this process gave up: the server's certificate has another "
                   "role.",
                   {}, refusals_->servers.value());
}

void TlsIdentity::MakeChannelCredentials() {
  for (size_t role = 0; role < channels_.size(); ++role) {
    grpc::experimental::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(provider_);
    options.watch_root_certs();
    options.watch_identity_key_cert_pairs();
    options.set_verify_server_certs(true);
    options.set_check_call_host(false);
    options.set_certificate_verifier(
        grpc::experimental::ExternalCertificateVerifier::Create<ServerRoleVerifier>(
            static_cast<Role>(role), [refusals = refusals_] { refusals->servers.Increment(); }));
    channels_[role] = grpc::experimental::TlsCredentials(options);
  }
}

std::shared_ptr<grpc::ServerCredentials> TlsIdentity::MakeServerCredentials() const {
  grpc::experimental::TlsServerCredentialsOptions options(provider_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(
      std::make_shared<CallerRoleProcessor>([refusals = refusals_](const absl::Status& refusal) {
        (absl::IsPermissionDenied(refusal) ? refusals->calls_of_role : refusals->unknown_calls)
            .Increment();
        return refusals->calls_of_role.value() + refusals->unknown_calls.value();
      }));
  return credentials;
}

void TlsIdentity::LookForEver(TlsMaterial material, std::vector<int64_t> print) {
  std::vector<int64_t> taken = std::move(print);
  std::vector<int64_t> refused;  // told already
  std::vector<int64_t> before = taken;
  bool told_expired = false;
  while (ended_.WaitFor(kLookEvery)) {
    if (absl::Now() > material.valid_until && !std::exchange(told_expired, true)) {
      LogError("the certificate has expired, others refuse new connections",
               Describe(files_, material));
    }
    std::vector<int64_t> now = Fingerprint(files_);
    // Files that are still being written are looked at when they have come to rest.
    const bool at_rest = std::exchange(before, now) == now;
    if (!at_rest || now == refused) continue;
    if (now == taken) {
      if (!refused.empty()) SetFilesStatus(absl::OkStatus());  // they were put back
      refused.clear();
      continue;
    }
    absl::StatusOr<TlsMaterial> read = ReadTlsFiles(files_, needed_, absl::Now());
    const absl::Status status = read.ok() ? Take(*read) : read.status();
    SetFilesStatus(status);
    if (!status.ok()) {
      LogError("new certificate files are not used, the old ones stay",
               {{"cause", status.message()}});
      refused = std::move(now);
      continue;
    }
    material = *std::move(read);
    told_expired = false;
    taken = std::move(now);
    refused.clear();
    LogInfo("new certificate files are used from now on", Describe(files_, material));
  }
}

}  // namespace weft
