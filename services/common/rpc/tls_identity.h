// TlsIdentity is what a process shows to others and whom it believes: certificate, key and CAs,
// read from files that are looked at again every second. New connections use what the files hold
// now; connections that are there go on. New files that cannot be used (half written, expired, a
// key that does not fit) change nothing, and are told in the log.
//
// Peers prove a role, not a host name: pods come and go under changing names. A client refuses a
// server whose certificate does not carry the role that it means to call; a server asks
// method_roles.h who may call what, before any handler.
//
// Counted are calls that roles may not make and servers of another role; handshakes that fail are
// gRPC's to tell (grpc_log.h).
//
// Thread-safety: all methods may be called from any thread. Threads: one that looks at the files,
// and gRPC's own; make it after ShutdownSignals.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/metrics.h"
#include "services/common/mutex.h"
#include "services/common/retry.h"
#include "services/common/rpc/memory_file.h"
#include "services/common/rpc/roles.h"
#include "services/common/rpc/tls_files.h"

namespace grpc {
class CallbackServerContext;
}  // namespace grpc

namespace weft {

// What the caller's certificate makes of it. None without TLS; with it, a call without a role gets
// to no handler.
RoleSet CallerRoles(const grpc::CallbackServerContext& context);

class TlsIdentity {
 public:
  // `needed`: roles that the certificate has to carry; none: any one.
  // Errors: FailedPrecondition, one line (ReadTlsFiles).
  static absl::StatusOr<std::shared_ptr<TlsIdentity>> Load(const TlsFiles& files, RoleSet needed);
  ~TlsIdentity();
  TlsIdentity(const TlsIdentity&) = delete;
  TlsIdentity& operator=(const TlsIdentity&) = delete;

  // For channels to servers of this role.
  std::shared_ptr<grpc::ChannelCredentials> ToServersOf(Role role) const {
    return channels_[static_cast<size_t>(role)];
  }
  // Clients need a certificate of the CAs; their roles say what they may call.
  std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials() const;

  // Why the files as they are now are not used; OK when they are.
  absl::Status files_status() const ABSL_LOCKS_EXCLUDED(mu_);
  void WriteMetrics(MetricsPage* page) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What credentials count; they may outlive the identity.
  struct Refusals;

  TlsIdentity(const TlsFiles& files, RoleSet needed);

  absl::Status Take(const TlsMaterial& material) ABSL_LOCKS_EXCLUDED(mu_);
  void SetFilesStatus(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void MakeChannelCredentials();
  // `print`: of the files that `material` was read from.
  void LookForEver(TlsMaterial material, std::vector<int64_t> print);

  const TlsFiles files_;
  const RoleSet needed_;
  const std::shared_ptr<Refusals> refusals_;

  // Written by the thread that looks; read by gRPC, by their paths.
  MemoryFile identity_;  // certificate and key
  MemoryFile cas_;
  // gRPC's way of changing certificates is a path that it reads again every second. It does not
  // look at what it reads, so it gets the files of this process, which are checked.
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;
  std::array<std::shared_ptr<grpc::ChannelCredentials>, 5> channels_;  // by role

  mutable Mutex mu_;
  absl::Status files_status_ ABSL_GUARDED_BY(mu_);
  absl::Time valid_until_ ABSL_GUARDED_BY(mu_);  // of the certificate in use

  CancelFlag ended_;
  std::thread looks_;
};

}  // namespace weft
