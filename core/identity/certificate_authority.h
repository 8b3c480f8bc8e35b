// SPDX-License-Identifier: Apache-2.0
// The authority of one federation: a self-signed P-256 certificate and its key in a directory. It
// alone decides what stands in a certificate.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/identity/certificate.h"
#include "core/identity/signing_request.h"

namespace starling::identity {

// What a certificate is to say.
struct CertificateProfile {
  Role role = Role::kDevice;
  std::string name;
  // DNS names or numeric addresses it may be reached at: at least one for a coordinator, none for
  // an operator or a device.
  std::vector<std::string> addresses = {};
  Duration lifetime = std::chrono::hours(24 * 30);
};

class CertificateAuthority {
 public:
  struct Options {
    std::string federation;
    Duration lifetime = std::chrono::hours(24 * 365 * 10);
  };

  // Makes `directory` with key.pem (0600) and certificate.pem; "authority-exists" if one is there.
  [[nodiscard]] static Result<CertificateAuthority> create(const std::filesystem::path& directory,
                                                           const Options& options, WallTime now);
  [[nodiscard]] static Result<CertificateAuthority> load(const std::filesystem::path& directory);
  // In memory only, for tests and simulated federations.
  [[nodiscard]] static Result<CertificateAuthority> make(const Options& options, WallTime now);

  // A certificate from five minutes before `now` (clocks differ) until `now` + lifetime, but not
  // beyond the authority's own; 128-bit random serial.
  [[nodiscard]] Result<Certificate> issue(const SigningRequest& request,
                                          const CertificateProfile& profile, WallTime now) const;
  // The same for a key that is made here: the coordinator's own and the operator's.
  [[nodiscard]] Result<Credentials> issue_credentials(const CertificateProfile& profile,
                                                      WallTime now) const;

  const std::string& federation() const { return federation_; }
  const Certificate& certificate() const { return certificate_; }

 private:
  CertificateAuthority(std::string federation, PrivateKey key, Certificate certificate)
      : federation_(std::move(federation)),
        key_(std::move(key)),
        certificate_(std::move(certificate)) {}

  std::string federation_;
  PrivateKey key_;
  Certificate certificate_;
};

}  // namespace starling::identity
