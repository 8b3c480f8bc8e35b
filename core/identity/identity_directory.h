// SPDX-License-Identifier: Apache-2.0
// The directory in which a device or an operator keeps who it is: key.pem (0600), certificate.pem,
// ca.pem and `coordinator` (host:port). certificate.pem is written last: it stands for the whole.
#pragma once

#include <filesystem>
#include <optional>

#include "core/base/clock.h"
#include "core/identity/certificate.h"
#include "core/identity/host_port.h"

namespace starling::identity {

class IdentityDirectory {
 public:
  // "not-joined" where there is no certificate; "bad-certificate" where the files do not belong
  // together; "no-permission" and the like where they cannot be read.
  [[nodiscard]] static Result<IdentityDirectory> load(const std::filesystem::path& directory);
  // Writes all files durably; the key first, the certificate last.
  [[nodiscard]] static Result<void> save(const std::filesystem::path& directory,
                                         const Credentials& credentials,
                                         const HostPort& coordinator);
  // False also where the certificate cannot be looked for; load() then says why.
  static bool is_joined(const std::filesystem::path& directory);

  const Identity& identity() const { return identity_; }
  const Credentials& credentials() const { return credentials_; }
  const HostPort& coordinator() const { return coordinator_; }

  // What a coordinator told last after it had authenticated; at first, and never before, the
  // beginning of our own certificate, which the coordinator wrote.
  WallTime last_authenticated() const { return last_authenticated_; }
  // Keeps `time` durably (file `last-seen`) if it differs from what is known by a minute or more,
  // also if it is earlier: the coordinator's clock may have run ahead.
  [[nodiscard]] Result<void> record_authenticated(WallTime time);

 private:
  IdentityDirectory(std::filesystem::path directory, Identity identity, Credentials credentials,
                    HostPort coordinator, WallTime last_authenticated);

  std::filesystem::path directory_;
  Identity identity_;
  Credentials credentials_;
  HostPort coordinator_;
  WallTime last_authenticated_;
};

}  // namespace starling::identity
