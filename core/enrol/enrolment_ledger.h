// SPDX-License-Identifier: Apache-2.0
// Where the coordinator keeps its join tokens. The store implements it; the enrolment service
// decides nothing that is not written down here first.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/error.h"
#include "core/identity/identity.h"
#include "core/identity/join_token.h"

namespace starling::enrol {

// What a token admits to.
struct Grant {
  std::string name;
  identity::Role role = identity::Role::kDevice;
  std::vector<std::string> addresses = {};  // of a peer that may be reached
};

class EnrolmentLedger {
 public:
  // Makes the certificate, as PEM.
  using Issue = std::function<Result<std::string>(const Grant& grant)>;

  static constexpr int kBadMacsMax = 5;

  virtual ~EnrolmentLedger() = default;

  // The key of a token, whatever its state; "token-unknown".
  [[nodiscard]] virtual Result<identity::TokenKey> key(identity::TokenId id) = 0;
  // Counts a wrong MAC, durably; at kBadMacsMax the token is locked for good.
  [[nodiscard]] virtual Result<void> record_bad_mac(identity::TokenId id) = 0;
  // In one transaction that is durable when this returns: a token that is neither expired
  // ("token-expired"), nor locked ("token-locked"), nor revoked ("token-revoked"), nor used by
  // another request ("token-used") is marked as used by `request`, and what `issue` made is stored
  // with the client it admits. A token used by the same request gives the same certificate again
  // until it expires. If `issue` fails, nothing has happened.
  [[nodiscard]] virtual Result<std::string> redeem(identity::TokenId id,
                                                   const Sha256Digest& request, WallTime now,
                                                   const Issue& issue) = 0;
};

}  // namespace starling::enrol
