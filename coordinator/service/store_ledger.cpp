// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/store_ledger.h"

#include "coordinator/service/certificate_records.h"
#include "core/identity/host_port.h"
#include "core/identity/wipe.h"

namespace starling::coordinator {

static_assert(enrol::EnrolmentLedger::kBadMacsMax == store::Token::kBadTriesMax);

namespace {

// A certificate names hosts; ports stand in the roster.
std::vector<std::string> hosts_of(const std::vector<std::string>& addresses) {
  std::vector<std::string> hosts;
  for (const std::string& text : addresses) {
    if (const auto address = identity::parse_host_port(text)) hosts.push_back(address->host);
  }
  return hosts;
}

}  // namespace

Error StoreLedger::told(const Error& error) const {
  if (error.kind() == ErrorKind::kInternal) on_broken_(error);
  return error;
}

Result<identity::TokenKey> StoreLedger::key(identity::TokenId id) {
  auto token = store_.find_token(to_string(id), clock_.wall_now());
  if (!token) return told(token.error());
  if (!*token) return rejected("token-unknown", "this coordinator made no such token");
  const identity::WipeAtEnd wiped((*token)->mac_key);
  return identity::TokenKey::from_bytes((*token)->mac_key);
}

Result<void> StoreLedger::record_bad_mac(identity::TokenId id) {
  const auto state = store_.record_bad_try(to_string(id), clock_.wall_now());
  if (!state) return told(state.error());
  return {};
}

// Of a token that is open: what another one says is known already.
Result<void> StoreLedger::check_addresses(identity::TokenId id, WallTime now) {
  auto token = store_.find_token(to_string(id), now);
  if (!token) return told(token.error());
  if (!*token) return {};
  const identity::WipeAtEnd wiped((*token)->mac_key);
  if ((*token)->state != store::TokenState::kOpen) return {};
  for (const std::string& address : (*token)->addresses) {
    const auto is_free = check_address_((*token)->client, address);
    if (!is_free) return told(is_free.error());
  }
  return {};
}

Result<std::string> StoreLedger::redeem(identity::TokenId id, const Sha256Digest& request,
                                        WallTime now, const Issue& issue) {
  STARLING_TRY(check_addresses(id, now));
  std::string name;
  store::Role role = store::Role::kDevice;
  const auto sign = [&](const store::Token& token) -> Result<store::Certificate> {
    name = token.client;
    role = token.role;
    STARLING_ASSIGN(const std::string pem, issue({.name = token.client,
                                                  .role = to_identity(token.role),
                                                  .addresses = hosts_of(token.addresses)}));
    STARLING_ASSIGN(const auto certificate, identity::Certificate::parse_pem(pem));
    return to_record(certificate, token.client);
  };
  const auto redemption = store_.redeem_token(to_string(id), request, now, sign);
  if (!redemption) return told(redemption.error());
  if (!redemption->repeated) on_admitted_(name, role);
  return redemption->certificate.pem;
}

}  // namespace starling::coordinator
