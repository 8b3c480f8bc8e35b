// SPDX-License-Identifier: Apache-2.0
#include "core/identity/certificate.h"

#include <arpa/inet.h>
#include <openssl/pem.h>

#include <array>
#include <ctime>
#include <optional>

#include "core/base/check.h"
#include "core/base/durable_file.h"
#include "core/identity/openssl_handles.h"
#include "core/identity/public_key.h"

namespace starling::identity {
namespace {

constexpr std::size_t kPemBytesMax = 64 * 1024;

Error bad_certificate(std::string message) {
  return not_authorised("bad-certificate", std::move(message));
}

WallTime wall_time(const ASN1_TIME* time) {
  std::tm parts{};
  // Cannot fail: adopt() and the parsers refuse certificates with a malformed time.
  STARLING_CHECK(ASN1_TIME_to_tm(time, &parts) == 1);
  return WallTime(std::chrono::seconds(::timegm(&parts)));
}

bool has_readable_fields(const X509& certificate) {
  std::tm parts{};
  return ASN1_TIME_to_tm(X509_get0_notBefore(&certificate), &parts) == 1 &&
         ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &parts) == 1 &&
         X509_get0_pubkey(&certificate) != nullptr;
}

Result<Certificate> checked(CertificatePointer certificate) {
  const bool good = certificate && has_readable_fields(*certificate);
  clear_openssl_errors();
  if (!good) return bad_certificate("this is no X.509 certificate");
  return Certificate::adopt(certificate.release());
}

}  // namespace

Certificate Certificate::adopt(X509* certificate) {
  STARLING_CHECK(certificate != nullptr);
  return Certificate(std::shared_ptr<X509>(certificate, X509_free));
}

Result<Certificate> Certificate::parse_pem(std::string_view pem) {
  STARLING_ASSIGN(std::vector<Certificate> certificates, parse_certificates(pem, 1));
  return certificates.front();
}

Result<Certificate> Certificate::load(const std::filesystem::path& path) {
  STARLING_ASSIGN(const std::string pem, read_text_file(path, kPemBytesMax));
  Result<Certificate> certificate = parse_pem(pem);
  if (!certificate) return certificate.error().within(path.string());
  return certificate;
}

Result<std::vector<Certificate>> parse_certificates(std::string_view pem, std::size_t count_max) {
  if (pem.size() > kPemBytesMax) return bad_certificate("a bundle of more than 64 KiB");
  const BioPointer bio = bio_over(pem);
  std::vector<Certificate> certificates;
  for (;;) {
    CertificatePointer next(PEM_read_bio_X509(bio.get(), nullptr, nullptr, const_cast<char*>("")));
    const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    clear_openssl_errors();
    if (!next && at_end && !certificates.empty()) return certificates;
    if (certificates.size() == count_max) return bad_certificate("there are too many certificates");
    STARLING_ASSIGN(Certificate certificate, checked(std::move(next)));
    certificates.push_back(std::move(certificate));
  }
}

std::string Certificate::pem() const {
  const BioPointer bio(BIO_new(BIO_s_mem()));
  STARLING_CHECK(bio && PEM_write_bio_X509(bio.get(), native()) == 1);
  return std::string(bio_content(bio));
}

Bytes Certificate::der() const {
  Bytes der(static_cast<std::size_t>(i2d_X509(native(), nullptr)));
  unsigned char* end = uchars(der.data());
  STARLING_CHECK(i2d_X509(native(), &end) > 0);
  return der;
}

std::string Certificate::serial() const {
  const ASN1_INTEGER* serial = X509_get0_serialNumber(native());
  const int size = ASN1_STRING_length(serial);
  const auto* data = reinterpret_cast<const std::byte*>(ASN1_STRING_get0_data(serial));
  return to_hex({data, static_cast<std::size_t>(size)});
}

Sha256Digest Certificate::fingerprint() const { return sha256(der()); }

// Of the bytes in the certificate, as of OpenSSL's own encoding of the key, which takes it longer
// than to verify a signature.
Sha256Digest Certificate::public_key_digest() const {
  const X509_PUBKEY* key = X509_get_X509_PUBKEY(native());
  Bytes der(static_cast<std::size_t>(i2d_X509_PUBKEY(key, nullptr)));
  unsigned char* end = uchars(der.data());
  STARLING_CHECK(i2d_X509_PUBKEY(key, &end) > 0);
  return sha256(der);
}

Validity Certificate::validity() const {
  return {wall_time(X509_get0_notBefore(native())), wall_time(X509_get0_notAfter(native()))};
}

namespace {

// What `read` makes of each subject alternative name, but for those that it makes nothing of.
template <class Read>
std::vector<std::string> read_names(X509* certificate, Read read) {
  const GeneralNamesPointer names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  clear_openssl_errors();
  std::vector<std::string> found;
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    std::optional<std::string> text = read(*sk_GENERAL_NAME_value(names.get(), i));
    if (text) found.push_back(*std::move(text));
  }
  return found;
}

std::string bytes_of(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<std::size_t>(ASN1_STRING_length(text))};
}

std::optional<std::string> numeric_address(const ASN1_OCTET_STRING* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = ASN1_STRING_length(address) == 4 ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ASN1_STRING_length(address) != 16) return std::nullopt;
  ::inet_ntop(family, ASN1_STRING_get0_data(address), text.data(), text.size());
  return std::string(text.data());
}

}  // namespace

std::vector<std::string> Certificate::uris() const {
  return read_names(native(), [](const GENERAL_NAME& name) {
    return name.type == GEN_URI ? std::optional(bytes_of(name.d.uniformResourceIdentifier))
                                : std::nullopt;
  });
}

std::vector<std::string> Certificate::hosts() const {
  return read_names(native(), [](const GENERAL_NAME& name) {
    if (name.type == GEN_DNS) return std::optional(bytes_of(name.d.dNSName));
    return name.type == GEN_IPADD ? numeric_address(name.d.iPAddress) : std::nullopt;
  });
}

Result<Identity> Certificate::identity() const {
  const std::vector<std::string> all = uris();
  if (all.size() == 1) return Identity::parse(all.front());
  return rejected("bad-identity", "the certificate carries " + std::to_string(all.size()) +
                                      " URIs; it must carry exactly one");
}

}  // namespace starling::identity
