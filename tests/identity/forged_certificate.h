// SPDX-License-Identifier: Apache-2.0
// Certificates that our own authority would never issue: with whatever names, times, usages and
// signer a test asks for.
#pragma once

#include <openssl/x509v3.h>

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "core/identity/certificate.h"

namespace starling::testing {

struct Forgery {
  std::string subject = "cam-7";
  std::vector<std::pair<int, std::string>> extensions;  // nid, value as in x509v3_config(5)
  WallTime not_before{};
  WallTime not_after{};
};

// What a device's certificate carries, to be changed by the test.
inline Forgery device_forgery(const std::string& names, WallTime now) {
  using std::chrono::hours;
  return {.subject = "cam-7",
          .extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                         {NID_key_usage, "critical,digitalSignature"},
                         {NID_ext_key_usage, "clientAuth"},
                         {NID_subject_key_identifier, "hash"},
                         {NID_authority_key_identifier, "keyid:always"},
                         {NID_subject_alt_name, names}},
          .not_before = now - hours(1),
          .not_after = now + hours(1)};
}

inline Forgery authority_forgery(const std::string& subject, WallTime now) {
  using std::chrono::hours;
  return {.subject = subject,
          .extensions = {{NID_basic_constraints, "critical,CA:TRUE"},
                         {NID_key_usage, "critical,keyCertSign"},
                         {NID_subject_key_identifier, "hash"},
                         {NID_authority_key_identifier, "keyid:always"}},
          .not_before = now - hours(24 * 365),
          .not_after = now + hours(24 * 365)};
}

inline void set_forged_time(ASN1_TIME* field, WallTime time) {
  ASN1_TIME_set(
      field, std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time)));
}

// `issuer` null: signed by itself; `issuer_key` signs.
inline identity::Certificate forge(const Forgery& forgery, const identity::PrivateKey& key,
                                   const identity::Certificate* issuer,
                                   const identity::PrivateKey& issuer_key) {
  static long serial = 1000;
  X509* certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  set_forged_time(X509_getm_notBefore(certificate), forgery.not_before);
  set_forged_time(X509_getm_notAfter(certificate), forgery.not_after);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(forgery.subject.c_str()), -1,
                             -1, 0);
  X509* signer = issuer ? issuer->native() : certificate;
  X509_set_issuer_name(certificate, X509_get_subject_name(signer));
  X509_set_pubkey(certificate, key.native());
  for (const auto& [nid, value] : forgery.extensions) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, signer, certificate, nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  X509_sign(certificate, issuer_key.native(), EVP_sha256());
  return identity::Certificate::adopt(certificate);
}

// An authority whose key the test holds.
struct ForgedAuthority {
  identity::PrivateKey key = identity::PrivateKey::generate();
  identity::Certificate certificate;

  ForgedAuthority(const std::string& subject, WallTime now)
      : certificate(forge(authority_forgery(subject, now), key, nullptr, key)) {}

  identity::Credentials issue(const Forgery& forgery) const {
    identity::PrivateKey leaf = identity::PrivateKey::generate();
    identity::Certificate issued = forge(forgery, leaf, &certificate, key);
    return {.key = leaf, .certificate = issued, .authorities = {certificate}};
  }
};

}  // namespace starling::testing
