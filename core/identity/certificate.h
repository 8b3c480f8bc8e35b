// SPDX-License-Identifier: Apache-2.0
// An X.509 certificate as a value, and the credentials that one end of a connection shows.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/error.h"
#include "core/identity/identity.h"
#include "core/identity/private_key.h"

struct x509_st;

namespace starling::identity {

// From not_before until just before not_after.
struct Validity {
  WallTime not_before;
  WallTime not_after;
  bool contains(WallTime time) const { return not_before <= time && time < not_after; }
};

// A handle to an immutable certificate; copies share it.
class Certificate {
 public:
  // "bad-certificate" where the text is not exactly one certificate.
  [[nodiscard]] static Result<Certificate> parse_pem(std::string_view pem);
  [[nodiscard]] static Result<Certificate> load(const std::filesystem::path& path);
  // Takes over a reference that the caller owns. Requires: not null.
  static Certificate adopt(x509_st* certificate);

  std::string pem() const;
  Bytes der() const;
  std::string serial() const;  // lower-case hexadecimal
  Sha256Digest fingerprint() const;
  Sha256Digest public_key_digest() const;
  Validity validity() const;
  std::vector<std::string> uris() const;  // of the subject alternative names, as they stand there
  // The DNS names and numeric addresses among them: where its owner may be reached.
  std::vector<std::string> hosts() const;
  // The one Starling URI of the subject alternative names; "bad-identity" for none or several.
  [[nodiscard]] Result<Identity> identity() const;
  x509_st* native() const { return certificate_.get(); }

 private:
  explicit Certificate(std::shared_ptr<x509_st> certificate)
      : certificate_(std::move(certificate)) {}
  std::shared_ptr<x509_st> certificate_;
};

// One to `count_max` certificates in a row, as a bundle of authorities is kept during a rotation.
[[nodiscard]] Result<std::vector<Certificate>> parse_certificates(std::string_view pem,
                                                                  std::size_t count_max = 4);

struct Credentials {
  PrivateKey key;
  Certificate certificate;
  std::vector<Certificate> authorities;  // whom the other side's certificate must come from
};

}  // namespace starling::identity
