// SPDX-License-Identifier: Apache-2.0
// Between core/identity and core/store, which do not know each other.
#pragma once

#include <string>

#include "core/identity/certificate.h"
#include "core/store/records.h"

namespace starling::coordinator {

// The operator that `init` makes for commands on the same machine.
inline constexpr const char* kLocalOperator = "operator";

inline store::Certificate to_record(const identity::Certificate& certificate, std::string client) {
  const identity::Validity validity = certificate.validity();
  return {.serial = certificate.serial(),
          .client = std::move(client),
          .fingerprint = certificate.public_key_digest(),
          .pem = certificate.pem(),
          .not_before = validity.not_before,
          .not_after = validity.not_after};
}

inline identity::Role to_identity(store::Role role) {
  switch (role) {
    case store::Role::kDevice:
      return identity::Role::kDevice;
    case store::Role::kPeer:
      return identity::Role::kPeer;
    case store::Role::kOperator:
      return identity::Role::kOperator;
  }
  return identity::Role::kDevice;
}

}  // namespace starling::coordinator
