// SPDX-License-Identifier: Apache-2.0
// Input: a signed roster, or the text of one that a good signer signs.
#include "core/base/check.h"
#include "core/identity/certificate_authority.h"
#include "core/identity/roster.h"
#include "core/identity/signature.h"
#include "tests/fuzz/fuzz_target.h"

namespace starling {
namespace {

using identity::SignedRoster;

const WallTime kNow = *parse_rfc3339("2026-11-20T09:00:00Z");

struct Federation {
  identity::CertificateAuthority authority =
      *identity::CertificateAuthority::make({.federation = "kitchen"}, kNow);
  identity::Credentials owner =
      *authority.issue_credentials({.role = identity::Role::kIssuer, .name = "owner"}, kNow);
};

// What is taken is sound and says, signed again, the same.
void verify(const Federation& federation, std::string_view text) {
  const auto roster = SignedRoster::verify(as_bytes(text), federation.owner.authorities, "kitchen");
  if (!roster) {
    const std::string code = roster.error().code();
    STARLING_CHECK(code == "bad-roster" || code.starts_with("roster-"));
    STARLING_CHECK(!roster.error().message().empty());
    return;
  }
  STARLING_CHECK(roster->roster().validate().has_value());
  const auto again = SignedRoster::sign(roster->roster(), federation.owner);
  STARLING_CHECK(again && again->roster() == roster->roster());
}

}  // namespace
}  // namespace starling

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace starling;
  static const Federation kFederation;
  const std::string_view text = as_text(std::as_bytes(std::span(data, size)));
  verify(kFederation, text);
  // Mutation does not find signatures: the input as what a good signer signs.
  const std::string body = std::string(text) + kFederation.owner.certificate.pem();
  const auto signature = identity::sign(kFederation.owner.key, as_bytes(body));
  verify(kFederation, body + "signature " + to_hex(signature) + "\n");
  return 0;
}
