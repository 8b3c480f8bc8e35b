// SPDX-License-Identifier: Apache-2.0
// Rosters that this version does not sign: as earlier ones signed them, or others may.
#pragma once

#include <string>

#include "core/base/bytes.h"
#include "core/identity/certificate.h"
#include "core/identity/roster.h"
#include "core/identity/signature.h"

namespace starling::testing {

// `body` with the signature of `signer`, who need not be allowed to sign it.
inline std::string signed_text(std::string body, const identity::Credentials& signer) {
  body += signer.certificate.pem();
  return body + "signature " + to_hex(identity::sign(signer.key, as_bytes(body))) + "\n";
}

// What stands before the signer's certificate.
inline std::string body_of(const identity::SignedRoster& roster) {
  const std::string text(as_text(roster.bytes().view()));
  return text.substr(0, text.find("-----BEGIN"));
}

// What `roster` says, signed with another key, as by the coordinators of earlier versions.
inline std::string signed_again(const identity::SignedRoster& roster,
                                const identity::Credentials& signer) {
  return signed_text(body_of(roster), signer);
}

}  // namespace starling::testing
