// SPDX-License-Identifier: Apache-2.0
// Whether the certificate that the other side shows is good enough, and why not. Each refusal has
// its reason code:
//   no-certificate unknown-authority self-signed bad-certificate certificate-expired
//   certificate-not-yet-valid certificate-revoked wrong-role wrong-federation wrong-name
//   wrong-address
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/base/clock.h"
#include "core/identity/certificate.h"

namespace starling::identity {

// What the judge knows of the time. A device whose clock lies outside a certificate's validity goes
// by the last time that a coordinator authenticated. The coordinator goes by its clock, and gives
// it as the last authenticated time too: what its authority has issued for later counts as just
// begun.
struct VerificationTime {
  WallTime now;
  std::optional<WallTime> last_authenticated = {};
};

// When a certificate of this validity is to be judged: `now` if it lies inside or nothing else is
// known; else the last authenticated time, which is a lower bound of the true time, so that a
// certificate issued later than it counts as just begun.
WallTime verification_time(const Validity& validity, const VerificationTime& time);

enum class Side { kServer, kClient };  // what the judged side is

struct PeerPolicy {
  std::optional<std::string> federation =
      {};  // none: any, where a pin has already named the authority
  RoleSet roles = {};
  std::optional<std::string> name = {};
  std::optional<std::string> address = {};  // DNS name or numeric address that was dialled
  std::function<VerificationTime()> time = nullptr;
  // Null: nobody is revoked (a device, which has no list).
  std::function<bool(const std::string& serial, const Sha256Digest& public_key)> is_revoked =
      nullptr;
  // Asked last: whom the certificate names rightly may still be nobody to us; an error is the
  // refusal. Null: everybody is admitted.
  std::function<Result<void>(const Identity&, const Sha256Digest& public_key)> admit = nullptr;
};

struct VerifiedPeer {
  Identity identity;
  Certificate certificate;
  Certificate authority;
};

// Requires: policy.time is set; authorities are trusted, `presented` is hostile (leaf first).
[[nodiscard]] Result<VerifiedPeer> verify_peer(std::span<const Certificate> presented,
                                               std::span<const Certificate> authorities, Side side,
                                               const PeerPolicy& policy);

}  // namespace starling::identity
