// SPDX-License-Identifier: Apache-2.0
// The federation and who belongs to it: clients, their certificates, the tokens by which they join.
// What all calls promise, and fail with: store.h.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/store/records.h"

namespace starling::store {

// Signs the request that came with a token, for the token's client. Called inside the transaction
// at most once; it must not write to the store; its failure leaves the token open.
using IssueCertificate = std::function<Result<Certificate>(const Token& token)>;

class IdentityStore {
 public:
  virtual ~IdentityStore() = default;

  // The federation: "federation-exists", "federation-missing". Facts are words kept for the owner
  // of the key ("join.address", ...).
  [[nodiscard]] virtual Result<void> create_federation(const Federation& federation) = 0;
  [[nodiscard]] virtual Result<Federation> federation() = 0;
  [[nodiscard]] virtual Result<void> set_fact(std::string_view key, std::string_view value) = 0;
  [[nodiscard]] virtual Result<std::optional<std::string>> fact(std::string_view key) = 0;

  // Clients, in order of name. A client is born by redeem_token, or by add_client for the one
  // operator that `init` makes ("client-exists" while its certificate is good).
  [[nodiscard]] virtual Result<void> add_client(std::string_view name, Role role,
                                                const Certificate& certificate, WallTime now) = 0;
  [[nodiscard]] virtual Result<std::optional<Client>> find_client(std::string_view name) = 0;
  [[nodiscard]] virtual Result<std::vector<Client>> clients() = 0;
  // Not durable. `greeting`: what the client said of itself, if it did now. "client-unknown".
  [[nodiscard]] virtual Result<void> record_seen(std::string_view name, WallTime now,
                                                 const std::optional<Greeting>& greeting) = 0;
  // When clients were last heard, in one transaction. Not durable. Unknown ones are left out.
  [[nodiscard]] virtual Result<void> record_heard(std::span<const ClientHeard> heard) = 0;
  // Revokes the client, all its certificates and its open tokens; the same again changes nothing.
  // Returns all its revocations, also earlier ones. "client-unknown".
  [[nodiscard]] virtual Result<std::vector<Revocation>> revoke_client(std::string_view name,
                                                                      WallTime now) = 0;

  // A renewal: the certificate becomes its client's newest. "client-unknown", "client-revoked",
  // "certificate-exists" (serial), "key-revoked".
  [[nodiscard]] virtual Result<void> add_certificate(const Certificate& certificate) = 0;
  [[nodiscard]] virtual Result<std::optional<Certificate>> find_certificate(
      std::string_view serial) = 0;
  [[nodiscard]] virtual Result<std::vector<Revocation>> revocations() = 0;

  // Tokens. A new one replaces (revokes) the open ones of the same client, so that a lost command
  // is simply asked for again. For a client whose certificate is still good (not
  // revoked, not expired when the token was created) it is refused ("client-exists"): two devices
  // must never share a name unnoticed; a reset device's old identity is revoked first, and then
  // the name may join again, also with another role.
  // "token-exists".
  [[nodiscard]] virtual Result<void> create_token(const Token& token) = 0;
  // `now` decides what is expired.
  [[nodiscard]] virtual Result<std::optional<Token>> find_token(std::string_view id,
                                                                WallTime now) = 0;
  [[nodiscard]] virtual Result<std::vector<Token>> tokens(WallTime now) = 0;  // oldest first
  // Of an open, locked or expired token; a used one stays used ("token-used": revoke its client).
  [[nodiscard]] virtual Result<void> revoke_token(std::string_view id, WallTime now) = 0;
  // A MAC that did not verify; the Token::kBadTriesMax-th locks an open token. Returns its state.
  [[nodiscard]] virtual Result<TokenState> record_bad_try(std::string_view id, WallTime now) = 0;
  // Requires: the MAC over this request was verified. Uses the token up, makes the client and
  // stores its certificate. The same request again, even after the token's life, returns the same
  // certificate unless it was revoked, so that a lost reply is harmless.
  // "token-unknown", "token-used", "token-revoked", "token-locked", "token-expired",
  // "certificate-revoked", "key-revoked", and those of `issue`.
  [[nodiscard]] virtual Result<Redemption> redeem_token(std::string_view id,
                                                        const Sha256Digest& csr_sha256,
                                                        WallTime now,
                                                        const IssueCertificate& issue) = 0;
};

}  // namespace starling::store
