// SPDX-License-Identifier: Apache-2.0
#include "core/store/memory_store.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/store/memory_store_impl.h"
#include "core/store/rules.h"

namespace starling::store {

Result<void> MemoryStore::create_federation(const Federation& federation) {
  if (federation_) {
    return rejected("federation-exists", "the federation " + federation_->name +
                                             " is already here; use another directory");
  }
  federation_ = federation;
  return {};
}

Result<Federation> MemoryStore::federation() {
  if (federation_) return *federation_;
  return rejected("federation-missing", "no federation was made here; first: init");
}

Result<void> MemoryStore::set_fact(std::string_view key, std::string_view value) {
  facts_.insert_or_assign(std::string(key), std::string(value));
  return {};
}

Result<std::optional<std::string>> MemoryStore::fact(std::string_view key) {
  return find_value(facts_, key);
}

Result<void> MemoryStore::check_certificate(const Certificate& certificate) const {
  return rules::may_certify(certificate, certificates_.contains(certificate.serial),
                            revoked_keys_.contains(certificate.fingerprint));
}

Result<void> MemoryStore::certify(std::string_view name, Role role, const Certificate& certificate,
                                  WallTime now) {
  STARLING_CHECK(certificate.client == name);
  STARLING_TRY(rules::may_join(name, find_value(clients_, name), now));
  STARLING_TRY(check_certificate(certificate));
  certificates_.emplace(certificate.serial, certificate);
  Client& client = clients_[std::string(name)];
  client = Client{.name = std::string(name),
                  .role = role,
                  .state = ClientState::kActive,
                  .joined = now,
                  .last_seen = client.last_seen,
                  .rows = client.rows,
                  .certificate_serial = certificate.serial,
                  .certificate_fingerprint = certificate.fingerprint,
                  .certificate_expires = certificate.not_after};
  return {};
}

Result<void> MemoryStore::add_client(std::string_view name, Role role,
                                     const Certificate& certificate, WallTime now) {
  return certify(name, role, certificate, now);
}

Result<std::optional<Client>> MemoryStore::find_client(std::string_view name) {
  return find_value(clients_, name);
}

Result<std::vector<Client>> MemoryStore::clients() {
  std::vector<Client> all;
  for (const auto& [name, client] : clients_) all.push_back(client);
  return all;
}

Result<void> MemoryStore::record_seen(std::string_view name, WallTime now,
                                      std::optional<std::uint64_t> rows) {
  const auto found = clients_.find(name);
  if (found == clients_.end()) return rules::client_unknown(name);
  found->second.last_seen = now;
  if (rows) found->second.rows = *rows;
  return {};
}

Result<void> MemoryStore::record_heard(std::span<const ClientHeard> heard) {
  for (const ClientHeard& one : heard) {
    const auto found = clients_.find(one.client);
    if (found != clients_.end()) found->second.last_seen = one.time;
  }
  return {};
}

void MemoryStore::revoke_open_tokens(std::string_view client) {
  for (auto& [id, token] : tokens_) {
    if (token.client == client && token.state == TokenState::kOpen) {
      token.state = TokenState::kRevoked;
    }
  }
}

Result<std::vector<Revocation>> MemoryStore::revoke_client(std::string_view name, WallTime now) {
  const auto found = clients_.find(name);
  if (found == clients_.end()) return rules::client_unknown(name);
  found->second.state = ClientState::kRevoked;
  revoke_open_tokens(name);
  std::vector<Revocation> revoked;
  for (auto& [serial, certificate] : certificates_) {
    if (certificate.client != name) continue;
    if (!certificate.revoked_at) certificate.revoked_at = now;
    revoked_keys_.insert(certificate.fingerprint);
    revoked.push_back({serial, certificate.fingerprint, *certificate.revoked_at});
  }
  return revoked;
}

Result<void> MemoryStore::add_certificate(const Certificate& certificate) {
  STARLING_TRY(rules::may_renew(certificate.client, find_value(clients_, certificate.client)));
  STARLING_TRY(check_certificate(certificate));
  certificates_.emplace(certificate.serial, certificate);
  Client& client = clients_.find(certificate.client)->second;
  client.certificate_serial = certificate.serial;
  client.certificate_fingerprint = certificate.fingerprint;
  client.certificate_expires = certificate.not_after;
  return {};
}

Result<std::optional<Certificate>> MemoryStore::find_certificate(std::string_view serial) {
  return find_value(certificates_, serial);
}

Result<std::vector<Revocation>> MemoryStore::revocations() {
  std::vector<Revocation> revoked;
  for (const auto& [serial, certificate] : certificates_) {
    if (certificate.revoked_at) {
      revoked.push_back({serial, certificate.fingerprint, *certificate.revoked_at});
    }
  }
  return revoked;
}

Result<void> MemoryStore::create_token(const Token& token) {
  STARLING_TRY(rules::may_join(token.client, find_value(clients_, token.client), token.created));
  STARLING_TRY(rules::may_create(token, tokens_.contains(token.id)));
  revoke_open_tokens(token.client);
  tokens_.emplace(token.id, token);
  return {};
}

Result<Token*> MemoryStore::token_of(std::string_view id) {
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) return rules::token_unknown(id);
  return &found->second;
}

Result<std::optional<Token>> MemoryStore::find_token(std::string_view id, WallTime now) {
  std::optional<Token> token = find_value(tokens_, id);
  if (token) token->state = rules::token_state_at(*token, now);
  return token;
}

Result<std::vector<Token>> MemoryStore::tokens(WallTime now) {
  std::vector<Token> all;
  for (const auto& [id, token] : tokens_) {
    all.push_back(token);
    all.back().state = rules::token_state_at(token, now);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Token& a, const Token& b) { return a.created < b.created; });
  return all;
}

Result<void> MemoryStore::revoke_token(std::string_view id, WallTime /*now*/) {
  STARLING_ASSIGN(Token * token, token_of(id));
  STARLING_TRY(rules::may_revoke(*token));
  token->state = TokenState::kRevoked;
  return {};
}

Result<TokenState> MemoryStore::record_bad_try(std::string_view id, WallTime now) {
  STARLING_ASSIGN(Token * token, token_of(id));
  *token = rules::after_bad_try(*token, now);
  return rules::token_state_at(*token, now);
}

Result<Redemption> MemoryStore::redeem_token(std::string_view id, const Sha256Digest& csr_sha256,
                                             WallTime now, const IssueCertificate& issue) {
  STARLING_ASSIGN(Token * token, token_of(id));
  STARLING_ASSIGN(const rules::RedeemStep step, rules::judge_redemption(*token, csr_sha256, now));
  if (step == rules::RedeemStep::kRepeat) {
    STARLING_ASSIGN(Certificate issued,
                    rules::may_return_again(
                        *token, find_value(certificates_, token->certificate_serial.value_or(""))));
    return Redemption{std::move(issued), true};
  }
  STARLING_TRY(rules::may_join(token->client, find_value(clients_, token->client), now));
  STARLING_ASSIGN(Certificate certificate, issue(*token));
  STARLING_TRY(certify(token->client, token->role, certificate, now));
  token->state = TokenState::kUsed;
  token->csr_sha256 = csr_sha256;
  token->certificate_serial = certificate.serial;
  return Redemption{std::move(certificate), false};
}

Result<void> MemoryStore::backup_to(const std::filesystem::path& path) {
  return unsupported("backup-unsupported", "nothing to back up to " + path.string() +
                                               ": this store holds everything in memory");
}

std::unique_ptr<Store> make_memory_store() { return std::make_unique<MemoryStore>(); }

}  // namespace starling::store
