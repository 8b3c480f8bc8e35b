// SPDX-License-Identifier: Apache-2.0
// Clients, certificates and tokens of the SqliteStore.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/store/sqlite_store_impl.h"

namespace starling::store {
namespace {

constexpr std::string_view kRevocationsOf =
    "SELECT serial, fingerprint, revoked_at FROM certificates "
    "WHERE client = ? AND revoked_at IS NOT NULL ORDER BY serial";

// Abilities are words with blanks between them, as in the message that brings them.
std::string join_words(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// A shape is "1,28,28".
std::string join_shape(const std::vector<std::uint32_t>& shape) {
  return fmt::format("{}", fmt::join(shape, ","));
}

std::optional<std::vector<std::uint32_t>> split_shape(std::string_view text) {
  std::vector<std::uint32_t> shape;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    const auto [after, code] = std::from_chars(at, end, shape.emplace_back());
    if (code != std::errc() || (after != end && *after != ',')) return std::nullopt;
    at = after == end ? end : after + 1;
  }
  return shape;
}

Result<Client> read_client(Query& query) {
  Client client;
  std::string abilities, input;
  STARLING_TRY(query.into(client.name, client.role, client.state, client.joined, client.last_seen,
                          client.greeting.rows, abilities, input, client.greeting.classes,
                          client.greeting.held_out, client.certificate_serial,
                          client.certificate_fingerprint, client.certificate_expires));
  client.greeting.abilities = split_words(abilities);
  auto shape = split_shape(input);
  if (!shape) {
    return internal(
        "database-damaged",
        fmt::format("the database holds '{}' as the shape of {}'s data", input, client.name));
  }
  client.greeting.input = *std::move(shape);
  return client;
}

Result<Certificate> read_certificate(Query& query) {
  Certificate certificate;
  STARLING_TRY(query.into(certificate.serial, certificate.client, certificate.fingerprint,
                          certificate.pem, certificate.not_before, certificate.not_after,
                          certificate.revoked_at));
  return certificate;
}

Result<Revocation> read_revocation(Query& query) {
  Revocation revocation;
  STARLING_TRY(query.into(revocation.serial, revocation.fingerprint, revocation.revoked_at));
  return revocation;
}

// Addresses are lines of one text.
std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

Result<Token> read_token(Query& query) {
  Token token;
  std::string addresses;
  STARLING_TRY(query.into(token.id, token.client, token.role, addresses, token.mac_key,
                          token.created, token.expires, token.state, token.bad_tries,
                          token.csr_sha256, token.certificate_serial));
  token.addresses = split_lines(addresses);
  return token;
}

}  // namespace

Result<std::optional<Client>> SqliteStore::find_client(std::string_view name) {
  return database_->first(
      "SELECT c.name, c.role, c.state, c.joined, c.last_seen, c.training_rows, "
      "c.abilities, c.input, c.classes, c.held_out, k.serial, k.fingerprint, k.not_after FROM "
      "clients c JOIN "
      "certificates k ON k.serial = c.certificate "
      "WHERE c.name = ?",
      read_client, name);
}

Result<std::vector<Client>> SqliteStore::clients() {
  return database_->all(
      "SELECT c.name, c.role, c.state, c.joined, c.last_seen, c.training_rows, "
      "c.abilities, c.input, c.classes, c.held_out, k.serial, k.fingerprint, k.not_after FROM "
      "clients c JOIN "
      "certificates k ON k.serial = c.certificate "
      "ORDER BY c.name",
      read_client);
}

Result<void> SqliteStore::insert_certificate(const Certificate& certificate) {
  STARLING_ASSIGN(const auto same_serial, find_certificate(certificate.serial));
  STARLING_ASSIGN(const auto revoked,
                  database_->first("SELECT serial, fingerprint, revoked_at FROM certificates "
                                   "WHERE fingerprint = ? AND revoked_at IS NOT NULL",
                                   read_revocation, certificate.fingerprint));
  STARLING_TRY(rules::may_certify(certificate, same_serial.has_value(), revoked.has_value()));
  return database_->execute("INSERT INTO certificates VALUES(?, ?, ?, ?, ?, ?, ?)",
                            certificate.serial, certificate.client, certificate.fingerprint,
                            certificate.pem, certificate.not_before, certificate.not_after,
                            certificate.revoked_at);
}

Result<void> SqliteStore::certify(std::string_view name, Role role, const Certificate& certificate,
                                  WallTime now) {
  STARLING_CHECK(certificate.client == name);
  STARLING_ASSIGN(const std::optional<Client> holder, find_client(name));
  STARLING_TRY(rules::may_join(name, holder, now));
  STARLING_TRY(database_->execute(
      "INSERT INTO clients(name, role, state, joined, certificate) VALUES(?, ?, ?, ?, ?) "
      "ON CONFLICT DO UPDATE SET role = excluded.role, state = excluded.state, "
      "joined = excluded.joined, certificate = excluded.certificate, training_rows = 0, "
      "abilities = '', input = '', classes = 0, held_out = 0",  // of another device, perhaps
      name, role, ClientState::kActive, now, certificate.serial));
  return insert_certificate(certificate);
}

Result<void> SqliteStore::add_client(std::string_view name, Role role,
                                     const Certificate& certificate, WallTime now) {
  return database_->transact(Durability::kFull,
                             [&] { return certify(name, role, certificate, now); });
}

Result<void> SqliteStore::record_seen(std::string_view name, WallTime now,
                                      const std::optional<Greeting>& greeting) {
  return database_->transact(Durability::kRelaxed, [&]() -> Result<void> {
    STARLING_TRY(
        greeting
            ? database_->execute("UPDATE clients SET last_seen = ?, training_rows = ?, "
                                 "abilities = ?, input = ?, classes = ?, held_out = ? "
                                 "WHERE name = ?",
                                 now, greeting->rows, join_words(greeting->abilities),
                                 join_shape(greeting->input), greeting->classes, greeting->held_out,
                                 name)
            : database_->execute("UPDATE clients SET last_seen = ? WHERE name = ?", now, name));
    return database_->changes() == 0 ? rules::client_unknown(name) : Result<void>();
  });
}

Result<void> SqliteStore::record_heard(std::span<const ClientHeard> heard) {
  return database_->transact(Durability::kRelaxed, [&]() -> Result<void> {
    for (const ClientHeard& one : heard) {
      STARLING_TRY(database_->execute("UPDATE clients SET last_seen = ? WHERE name = ?", one.time,
                                      one.client));
    }
    return {};
  });
}

Result<std::vector<Revocation>> SqliteStore::revoke_client(std::string_view name, WallTime now) {
  return database_->transact(Durability::kFull, [&]() -> Result<std::vector<Revocation>> {
    STARLING_TRY(database_->execute("UPDATE clients SET state = ? WHERE name = ?",
                                    ClientState::kRevoked, name));
    if (database_->changes() == 0) return rules::client_unknown(name);
    STARLING_TRY(revoke_open_tokens(name));
    STARLING_TRY(database_->execute(
        "UPDATE certificates SET revoked_at = ? WHERE client = ? AND revoked_at IS NULL", now,
        name));
    return database_->all(kRevocationsOf, read_revocation, name);
  });
}

Result<void> SqliteStore::add_certificate(const Certificate& certificate) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const std::optional<Client> client, find_client(certificate.client));
    STARLING_TRY(rules::may_renew(certificate.client, client));
    STARLING_TRY(insert_certificate(certificate));
    return database_->execute("UPDATE clients SET certificate = ? WHERE name = ?",
                              certificate.serial, certificate.client);
  });
}

Result<std::optional<Certificate>> SqliteStore::find_certificate(std::string_view serial) {
  return database_->first(
      "SELECT serial, client, fingerprint, pem, not_before, not_after, revoked_at "
      "FROM certificates WHERE serial = ?",
      read_certificate, serial);
}

Result<std::vector<Revocation>> SqliteStore::revocations() {
  return database_->all(
      "SELECT serial, fingerprint, revoked_at FROM certificates WHERE revoked_at IS NOT NULL "
      "ORDER BY serial",
      read_revocation);
}

Result<void> SqliteStore::revoke_open_tokens(std::string_view client) {
  // 'open' in the text: else SQLite does not see that the index of open tokens serves.
  return database_->execute("UPDATE tokens SET state = ? WHERE client = ? AND state = 'open'",
                            TokenState::kRevoked, client);
}

Result<void> SqliteStore::create_token(const Token& token) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(const std::optional<Client> holder, find_client(token.client));
    STARLING_TRY(rules::may_join(token.client, holder, token.created));
    STARLING_ASSIGN(const std::optional<Token> known, find_token(token.id, token.created));
    STARLING_TRY(rules::may_create(token, known.has_value()));
    STARLING_TRY(revoke_open_tokens(token.client));
    return database_->execute(
        "INSERT INTO tokens(id, client, role, addresses, mac_key, created, expires, state) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
        token.id, token.client, token.role, join_lines(token.addresses), token.mac_key,
        token.created, token.expires, token.state);
  });
}

Result<std::optional<Token>> SqliteStore::find_token(std::string_view id, WallTime now) {
  STARLING_ASSIGN(
      std::optional<Token> token,
      database_->first("SELECT id, client, role, addresses, mac_key, created, expires, state, "
                       "bad_tries, csr_sha256, certificate FROM tokens WHERE id = ?",
                       read_token, id));
  if (token) token->state = rules::token_state_at(*token, now);
  return token;
}

Result<std::vector<Token>> SqliteStore::tokens(WallTime now) {
  STARLING_ASSIGN(
      std::vector<Token> tokens,
      database_->all("SELECT id, client, role, addresses, mac_key, created, expires, state, "
                     "bad_tries, csr_sha256, certificate FROM tokens "
                     "ORDER BY created, id",
                     read_token));
  for (Token& token : tokens) token.state = rules::token_state_at(token, now);
  return tokens;
}

// As stored: an open token is open here whatever the time.
Result<Token> SqliteStore::token_of(std::string_view id) {
  STARLING_ASSIGN(std::optional<Token> token, find_token(id, WallTime::min()));
  if (!token) return rules::token_unknown(id);
  return *std::move(token);
}

Result<void> SqliteStore::update_token(const Token& token) {
  return database_->execute(
      "UPDATE tokens SET state = ?, bad_tries = ?, csr_sha256 = ?, certificate = ? WHERE id = ?",
      token.state, token.bad_tries, token.csr_sha256, token.certificate_serial, token.id);
}

Result<void> SqliteStore::revoke_token(std::string_view id, WallTime /*now*/) {
  return database_->transact(Durability::kFull, [&]() -> Result<void> {
    STARLING_ASSIGN(Token token, token_of(id));
    STARLING_TRY(rules::may_revoke(token));
    token.state = TokenState::kRevoked;
    return update_token(token);
  });
}

Result<TokenState> SqliteStore::record_bad_try(std::string_view id, WallTime now) {
  return database_->transact(Durability::kFull, [&]() -> Result<TokenState> {
    STARLING_ASSIGN(Token token, token_of(id));
    token = rules::after_bad_try(std::move(token), now);
    STARLING_TRY(update_token(token));
    return rules::token_state_at(token, now);
  });
}

Result<Redemption> SqliteStore::redeem(std::string_view id, const Sha256Digest& csr_sha256,
                                       WallTime now, const IssueCertificate& issue) {
  STARLING_ASSIGN(Token token, token_of(id));
  STARLING_ASSIGN(const rules::RedeemStep step, rules::check_redemption(token, csr_sha256, now));
  if (step == rules::RedeemStep::kRepeat) {
    STARLING_ASSIGN(const std::optional<Certificate> issued,
                    find_certificate(token.certificate_serial.value_or("")));
    STARLING_ASSIGN(Certificate certificate, rules::may_return_again(token, issued));
    return Redemption{std::move(certificate), true};
  }
  STARLING_ASSIGN(const std::optional<Client> holder, find_client(token.client));
  STARLING_TRY(rules::may_join(token.client, holder, now));
  STARLING_ASSIGN(Certificate certificate, issue(token));
  STARLING_TRY(certify(token.client, token.role, certificate, now));
  token.state = TokenState::kUsed;
  token.csr_sha256 = csr_sha256;
  token.certificate_serial = certificate.serial;
  STARLING_TRY(update_token(token));
  return Redemption{std::move(certificate), false};
}

Result<Redemption> SqliteStore::redeem_token(std::string_view id, const Sha256Digest& csr_sha256,
                                             WallTime now, const IssueCertificate& issue) {
  return database_->transact(Durability::kFull, [&] { return redeem(id, csr_sha256, now, issue); });
}

}  // namespace starling::store
