#include "services/common/rpc/tls_files.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

// No bundle of CAs is larger.
constexpr off_t kMaxFileBytes = 4 << 20;

struct FreeOpenSsl {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509_STORE* p) const { X509_STORE_free(p); }
  void operator()(X509_STORE_CTX* p) const { X509_STORE_CTX_free(p); }
  void operator()(GENERAL_NAMES* p) const { GENERAL_NAMES_free(p); }
  void operator()(BIGNUM* p) const { BN_free(p); }
  void operator()(char* p) const { OPENSSL_free(p); }
  void operator()(STACK_OF(X509) * p) const { sk_X509_free(p); }  // not what is in it
};
template <typename T>
using Owned = std::unique_ptr<T, FreeOpenSsl>;
using Certificates = std::vector<Owned<X509>>;

absl::Status Unusable(const std::string& file, absl::string_view problem, absl::string_view help) {
  ERR_clear_error();
  return absl::FailedPreconditionError(absl::StrCat(file, " ", problem, ": ", help));
}

absl::StatusOr<std::string> ReadPem(const std::string& file) {
  struct stat info = {};
  if (stat(file.c_str(), &info) == 0 && (!S_ISREG(info.st_mode) || info.st_size > kMaxFileBytes)) {
    return Unusable(file, "is no PEM file", "give the path of a file with PEM blocks");
  }
  absl::StatusOr<std::string> text = ReadFile(file);
  if (text.ok()) return text;
  return absl::FailedPreconditionError(absl::StrCat(
      text.status().message(), ": it must be there and readable when the process starts"));
}

Owned<BIO> Reader(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Nobody is there to be asked for a passphrase.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::StatusOr<Certificates> ParseCertificates(const std::string& file, const std::string& text) {
  ERR_clear_error();
  const Owned<BIO> reader = Reader(text);
  Certificates certificates;
  while (X509* const next = PEM_read_bio_X509(reader.get(), nullptr, NoPassphrase, nullptr)) {
    certificates.emplace_back(next);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (!at_end) return Unusable(file, "holds a damaged certificate", "replace it by a whole one");
  ERR_clear_error();
  if (certificates.empty()) {
    return Unusable(file, "holds no certificate",
                    "it needs a PEM block that begins with -----BEGIN CERTIFICATE-----");
  }
  return certificates;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm fields = {};
  if (ASN1_TIME_to_tm(time, &fields) != 1) return absl::InfinitePast();
  return absl::FromTM(fields, absl::UTCTimeZone());
}

std::string SerialOf(const X509* certificate) {
  const Owned<BIGNUM> number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr));
  if (number == nullptr) return "";
  const Owned<char> text(BN_bn2hex(number.get()));
  return text == nullptr ? "" : text.get();
}

RoleSet RolesOf(const X509* certificate) {
  RoleSet roles;
  const Owned<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_DNS) continue;
    const ASN1_IA5STRING* const dns = name->d.dNSName;
    AddRoleOf({reinterpret_cast<const char*>(ASN1_STRING_get0_data(dns)),
               static_cast<size_t>(ASN1_STRING_length(dns))},
              &roles);
  }
  return roles;
}

absl::Status CheckKey(const TlsFiles& files, const std::string& text, const X509* certificate) {
  const Owned<BIO> reader = Reader(text);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(reader.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return Unusable(files.key, "holds no private key that can be read",
                    "it needs a PEM block -----BEGIN PRIVATE KEY-----, without a passphrase");
  }
  if (X509_check_private_key(certificate, key.get()) == 1) return absl::OkStatus();
  return Unusable(files.key,
                  absl::StrCat("is not the key of the certificate in ", files.certificate),
                  "give the two files that were made together");
}

absl::Status CheckValidity(const TlsFiles& files, const TlsMaterial& material, absl::Time now) {
  const auto format = [](absl::Time t) { return absl::FormatTime(t, absl::UTCTimeZone()); };
  if (now > material.valid_until) {
    return Unusable(files.certificate,
                    absl::StrCat("has expired at ", format(material.valid_until)),
                    "renew the certificate");
  }
  if (now < material.valid_from) {
    return Unusable(files.certificate,
                    absl::StrCat("is not valid before ", format(material.valid_from)),
                    "look at this machine's clock");
  }
  return absl::OkStatus();
}

// That others who believe the same CAs will believe this certificate.
absl::Status CheckChain(const TlsFiles& files, const Certificates& chain, const Certificates& cas,
                        absl::Time now) {
  const Owned<X509_STORE> store(X509_STORE_new());
  for (const Owned<X509>& ca : cas) X509_STORE_add_cert(store.get(), ca.get());
  const Owned<STACK_OF(X509)> between(sk_X509_new_null());
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(between.get(), chain[i].get());
  const Owned<X509_STORE_CTX> check(X509_STORE_CTX_new());
  if (X509_STORE_CTX_init(check.get(), store.get(), chain[0].get(), between.get()) != 1) {
    return Unusable(files.certificate, "cannot be checked", "is there memory left?");
  }
  X509_STORE_CTX_set_time(check.get(), 0, absl::ToTimeT(now));
  if (X509_verify_cert(check.get()) == 1) return absl::OkStatus();
  const int error = X509_STORE_CTX_get_error(check.get());
  return Unusable(files.certificate, absl::StrCat("is not of a CA in ", files.ca),
                  absl::StrCat(X509_verify_cert_error_string(error),
                               "; give the file of the CA that signed it"));
}

// Everybody calls somebody; servers are called as well.
absl::Status CheckPurpose(const TlsFiles& files, RoleSet roles, X509* certificate) {
  constexpr RoleSet kServers = {Role::kLockServer, Role::kPartitionServer, Role::kParamServer};
  if (X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0) == 1 &&
      (!roles.HasAny(kServers) ||
       X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) == 1)) {
    return absl::OkStatus();
  }
  return Unusable(files.certificate, "is not meant for TLS",
                  "its extended key usage needs client auth and, for servers, server auth");
}

absl::Status CheckRoles(const TlsFiles& files, RoleSet roles, RoleSet needed) {
  if (!needed.empty() && roles.HasAll(needed)) return absl::OkStatus();
  if (needed.empty() && !roles.empty()) return absl::OkStatus();
  return Unusable(files.certificate,
                  absl::StrCat("carries ", roles.empty() ? "" : "the roles of ", ToString(roles)),
                  needed.empty() ? "a DNS name such as operator.weft is needed"
                                 : absl::StrCat("the DNS names of ", ToString(needed),
                                                " are needed, each followed by .weft"));
}

}  // namespace

absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files, RoleSet needed, absl::Time now) {
  TlsMaterial material;
  WEFT_ASSIGN_OR_RETURN(material.certificate_chain, ReadPem(files.certificate));
  WEFT_ASSIGN_OR_RETURN(material.private_key, ReadPem(files.key));
  WEFT_ASSIGN_OR_RETURN(material.ca, ReadPem(files.ca));
  WEFT_ASSIGN_OR_RETURN(const Certificates chain,
                        ParseCertificates(files.certificate, material.certificate_chain));
  WEFT_ASSIGN_OR_RETURN(const Certificates cas, ParseCertificates(files.ca, material.ca));
  X509* const certificate = chain[0].get();
  material.roles = RolesOf(certificate);
  material.serial = SerialOf(certificate);
  material.valid_from = TimeOf(X509_get0_notBefore(certificate));
  material.valid_until = TimeOf(X509_get0_notAfter(certificate));
  WEFT_RETURN_IF_ERROR(CheckKey(files, material.private_key, certificate));
  WEFT_RETURN_IF_ERROR(CheckValidity(files, material, now));
  WEFT_RETURN_IF_ERROR(CheckChain(files, chain, cas, now));
  WEFT_RETURN_IF_ERROR(CheckPurpose(files, material.roles, certificate));
  WEFT_RETURN_IF_ERROR(CheckRoles(files, material.roles, needed));
  return material;
}

}  // namespace weft
