// SPDX-License-Identifier: Apache-2.0
// The one-use token `STJ1-...` that the operator hands to a device's owner: where the coordinator
// is, which authority it must show, and a secret that proves the right to join. The secret never
// crosses the wire; the coordinator keeps only the key derived from it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/digest.h"
#include "core/base/error.h"
#include "core/base/ids.h"

namespace starling::identity {

using TokenId = NumericId<struct TokenTag>;  // random, never 0

std::string to_string(TokenId id);  // 16 hexadecimal digits
[[nodiscard]] Result<TokenId> parse_token_id(std::string_view text);

using Mac = std::array<std::byte, 32>;

// K = HKDF-SHA256(secret, info "starling-enrol/1"): what the coordinator stores.
class TokenKey {
 public:
  static constexpr std::size_t kBytes = 32;
  [[nodiscard]] static Result<TokenKey> from_bytes(ByteView bytes);
  // Keys and secrets are wiped where they end.
  ~TokenKey();
  TokenKey(const TokenKey&) = default;
  TokenKey& operator=(const TokenKey&) = default;
  ByteView bytes() const { return bytes_; }

  // HMAC-SHA256(K, "starling-enrol/1" | exporter | SHA-256(request)): bound to this TLS channel
  // and to this key. `exporter`: 32 bytes of keying material of the channel.
  Mac mac(ByteView exporter, const Sha256Digest& request) const;
  // In constant time.
  bool verify(ByteView mac, ByteView exporter, const Sha256Digest& request) const;

 private:
  friend struct JoinToken;
  TokenKey() = default;
  std::array<std::byte, kBytes> bytes_{};
};

struct JoinToken {
  static constexpr std::size_t kSecretBytes = 16;

  TokenId id;
  std::array<std::byte, kSecretBytes> secret{};
  Sha256Digest authority;  // SHA-256 over the authority's SubjectPublicKeyInfo
  std::string host;        // DNS name or numeric address, an IPv6 address without brackets
  std::uint16_t port = 0;

  JoinToken() = default;
  ~JoinToken();
  JoinToken(const JoinToken&) = default;
  JoinToken& operator=(const JoinToken&) = default;
  // A fresh id and secret. Requires: host and port are valid (see parse_host_port).
  static JoinToken make(const Sha256Digest& authority, std::string host, std::uint16_t port);
  // Takes surrounding blanks and lower case; "bad-token" for anything that text() does not write.
  [[nodiscard]] static Result<JoinToken> parse(std::string_view text);

  std::string text() const;
  TokenKey key() const;
};

// Overwrites what follows STJ1- in a program's arguments, which every user of the machine can list
// as long as it runs (ps, /proc/PID/cmdline). For main, once the arguments are read.
void hide_join_tokens(std::span<char* const> arguments);

}  // namespace starling::identity
