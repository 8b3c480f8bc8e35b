// SPDX-License-Identifier: Apache-2.0
#include "core/identity/certificate_authority.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "core/base/check.h"
#include "core/base/durable_file.h"
#include "core/identity/host_port.h"
#include "core/identity/openssl_handles.h"
#include "core/identity/public_key.h"

namespace starling::identity {
namespace {

constexpr int kSerialBits = 128;
constexpr auto kBackdating = std::chrono::minutes(5);

// A certificate that is being written. Every call below fails only without memory, or for values
// that were not checked before, so a failure is a bug.
class CertificateWriter {
 public:
  CertificateWriter() : certificate_(X509_new()) {
    STARLING_CHECK(certificate_ && X509_set_version(certificate_.get(), X509_VERSION_3) == 1);
    const BignumPointer serial(BN_new());
    do {
      STARLING_CHECK(serial &&
                     BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1);
    } while (BN_is_zero(serial.get()));
    STARLING_CHECK(BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate_.get())));
  }

  void set_validity(const Validity& validity) {
    set_time(X509_getm_notBefore(certificate_.get()), validity.not_before);
    set_time(X509_getm_notAfter(certificate_.get()), validity.not_after);
  }

  void add_to_subject(const char* field, std::string_view value) {
    X509_NAME* name = X509_get_subject_name(certificate_.get());
    STARLING_CHECK(X509_NAME_add_entry_by_txt(name, field, MBSTRING_ASC,
                                              reinterpret_cast<const unsigned char*>(value.data()),
                                              static_cast<int>(value.size()), -1, 0) == 1);
  }

  void set_key(EVP_PKEY* key) { STARLING_CHECK(X509_set_pubkey(certificate_.get(), key) == 1); }

  // `issuer` null: by itself.
  void set_issuer(X509* issuer) {
    issuer_ = issuer != nullptr ? issuer : certificate_.get();
    STARLING_CHECK(X509_set_issuer_name(certificate_.get(), X509_get_subject_name(issuer_)) == 1);
  }

  // Requires: issuer and key are set; `value` in the words of x509v3_config(5).
  void add_extension(int nid, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer_, certificate_.get(), nullptr, nullptr, 0);
    const ExtensionPointer extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
    STARLING_CHECK(extension && X509_add_ext(certificate_.get(), extension.get(), -1) == 1);
  }

  Certificate sign(const PrivateKey& key) && {
    STARLING_CHECK(X509_sign(certificate_.get(), key.native(), EVP_sha256()) > 0);
    return Certificate::adopt(certificate_.release());
  }

 private:
  static void set_time(ASN1_TIME* field, WallTime time) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
    STARLING_CHECK(ASN1_TIME_set(field, seconds.time_since_epoch().count()) != nullptr);
  }

  CertificatePointer certificate_;
  X509* issuer_ = nullptr;
};

std::string key_usages(Role role) {
  switch (role) {
    case Role::kCoordinator:
    case Role::kPeer:
      return "serverAuth,clientAuth";
    case Role::kOperator:
    case Role::kDevice:
    case Role::kIssuer:
      return "clientAuth";
  }
  return "";
}

Result<void> check_addresses(const CertificateProfile& profile) {
  const bool may_serve = profile.role == Role::kCoordinator || profile.role == Role::kPeer;
  if (!may_serve && !profile.addresses.empty()) {
    return wrong_setting(
        "bad-address",
        "a certificate of role " + std::string(to_string(profile.role)) + " carries no address");
  }
  if (profile.role == Role::kCoordinator && profile.addresses.empty()) {
    return wrong_setting("bad-address", "a coordinator needs at least one name or address");
  }
  for (const std::string& address : profile.addresses) {
    if (is_numeric_address(address) || is_dns_name(address)) continue;
    return wrong_setting("bad-address", "\"" + address + "\" is neither a DNS name nor an address");
  }
  return {};
}

std::string alternative_names(const Identity& identity, const std::vector<std::string>& addresses) {
  std::string names = "URI:" + identity.uri();
  for (const std::string& address : addresses) {
    names += (is_numeric_address(address) ? ",IP:" : ",DNS:") + address;
  }
  return names;
}

Certificate make_authority(const CertificateAuthority::Options& options, const PrivateKey& key,
                           WallTime now) {
  CertificateWriter writer;
  const auto lifetime = std::chrono::floor<std::chrono::milliseconds>(options.lifetime);
  writer.set_validity({now - kBackdating, now + lifetime});
  writer.add_to_subject("O", "Starling");
  writer.add_to_subject("CN", options.federation);
  writer.set_issuer(nullptr);
  writer.set_key(key.native());
  writer.add_extension(NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  writer.add_extension(NID_key_usage, "critical,keyCertSign,cRLSign");
  writer.add_extension(NID_subject_key_identifier, "hash");
  writer.add_extension(NID_authority_key_identifier, "keyid:always");
  writer.add_extension(NID_subject_alt_name, "URI:" + std::string(kScheme) + options.federation);
  return std::move(writer).sign(key);
}

Result<std::string> federation_of(const Certificate& authority) {
  const std::vector<std::string> uris = authority.uris();
  if (uris.size() == 1 && uris.front().starts_with(kScheme)) {
    std::string federation = uris.front().substr(kScheme.size());
    STARLING_TRY(check_name(federation, "the federation"));
    return federation;
  }
  return not_authorised("bad-certificate",
                        "this is not the certificate of a federation's authority");
}

}  // namespace

Result<CertificateAuthority> CertificateAuthority::make(const Options& options, WallTime now) {
  STARLING_TRY(check_name(options.federation, "the federation"));
  const PrivateKey key = PrivateKey::generate();
  return CertificateAuthority(options.federation, key, make_authority(options, key, now));
}

Result<CertificateAuthority> CertificateAuthority::create(const std::filesystem::path& directory,
                                                          const Options& options, WallTime now) {
  STARLING_ASSIGN(CertificateAuthority authority, make(options, now));
  std::error_code ignored;
  if (std::filesystem::exists(directory / "certificate.pem", ignored)) {
    return rejected("authority-exists", directory.string() + " already holds an authority");
  }
  STARLING_TRY(make_directory(directory, true));
  STARLING_TRY(authority.key_.save(directory / "key.pem"));
  const std::string pem = authority.certificate_.pem();
  STARLING_TRY(write_durably(directory / "certificate.pem", as_bytes(pem)));
  return authority;
}

Result<CertificateAuthority> CertificateAuthority::load(const std::filesystem::path& directory) {
  STARLING_ASSIGN(Certificate certificate, Certificate::load(directory / "certificate.pem"));
  STARLING_ASSIGN(PrivateKey key, PrivateKey::load(directory / "key.pem"));
  STARLING_ASSIGN(std::string federation, federation_of(certificate));
  if (key.public_key_digest() != certificate.public_key_digest()) {
    return rejected("bad-key", "key.pem and certificate.pem in " + directory.string() +
                                   " do not belong together");
  }
  return CertificateAuthority(std::move(federation), std::move(key), std::move(certificate));
}

Result<Certificate> CertificateAuthority::issue(const SigningRequest& request,
                                                const CertificateProfile& profile,
                                                WallTime now) const {
  STARLING_TRY(check_name(profile.name, "the " + std::string(to_string(profile.role))));
  STARLING_TRY(check_addresses(profile));
  const Validity own = certificate_.validity();
  if (!own.contains(now)) {
    return rejected("authority-expired", "the authority of " + federation_ + " is valid from " +
                                             format_rfc3339(own.not_before) + " to " +
                                             format_rfc3339(own.not_after) +
                                             "; it cannot issue certificates now");
  }
  const Identity identity{.federation = federation_, .role = profile.role, .name = profile.name};
  const auto lifetime = std::chrono::floor<std::chrono::milliseconds>(profile.lifetime);

  CertificateWriter writer;
  writer.set_validity(
      {std::max(now - kBackdating, own.not_before), std::min(now + lifetime, own.not_after)});
  writer.add_to_subject("O", federation_);
  writer.add_to_subject("OU", to_string(profile.role));
  writer.add_to_subject("CN", profile.name);
  writer.set_issuer(certificate_.native());
  writer.set_key(X509_REQ_get0_pubkey(request.native()));
  writer.add_extension(NID_basic_constraints, "critical,CA:FALSE");
  writer.add_extension(NID_key_usage, "critical,digitalSignature");
  writer.add_extension(NID_ext_key_usage, key_usages(profile.role));
  writer.add_extension(NID_subject_key_identifier, "hash");
  writer.add_extension(NID_authority_key_identifier, "keyid:always");
  writer.add_extension(NID_subject_alt_name, alternative_names(identity, profile.addresses));
  return std::move(writer).sign(key_);
}

Result<Credentials> CertificateAuthority::issue_credentials(const CertificateProfile& profile,
                                                            WallTime now) const {
  PrivateKey key = PrivateKey::generate();
  STARLING_ASSIGN(Certificate certificate, issue(SigningRequest::make(key), profile, now));
  return Credentials{
      .key = std::move(key), .certificate = std::move(certificate), .authorities = {certificate_}};
}

}  // namespace starling::identity
