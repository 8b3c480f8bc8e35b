// SPDX-License-Identifier: Apache-2.0
#include "core/identity/join_token.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/identity/host_port.h"
#include "core/identity/openssl_handles.h"
#include "core/identity/wipe.h"

namespace starling::identity {
namespace {

constexpr std::string_view kPrefix = "STJ1-";
constexpr std::string_view kLabel = "starling-enrol/1";
constexpr std::byte kVersion{1};
constexpr std::size_t kIdBytes = 8;
constexpr std::size_t kFixedBytes = 1 + kIdBytes + JoinToken::kSecretBytes + Sha256Digest::kBytes;
constexpr std::size_t kTokenBytesMax = 1024;

using KdfPointer = OpensslPointer<EVP_KDF, EVP_KDF_free>;
using KdfContextPointer = OpensslPointer<EVP_KDF_CTX, EVP_KDF_CTX_free>;

Error bad_token(std::string why) {
  return wrong_setting("bad-token", "this is no join token (" + why +
                                        "); copy the whole text that starts with STJ1-");
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool has_prefix(std::string_view text) {
  return text.size() >= kPrefix.size() &&
         std::equal(kPrefix.begin(), kPrefix.end(), text.begin(),
                    [](char want, char have) { return want == have || (want | 0x20) == have; });
}

// RFC 5869 without salt.
void hkdf(ByteView secret, std::string_view info, MutableByteView out) {
  const KdfPointer kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const KdfContextPointer context(EVP_KDF_CTX_new(kdf.get()));
  std::array<OSSL_PARAM, 4> params = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, const_cast<char*>("SHA256"), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::byte*>(secret.data()),
                                        secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<char*>(info.data()),
                                        info.size()),
      OSSL_PARAM_construct_end()};
  STARLING_CHECK(context &&
                 EVP_KDF_derive(context.get(), uchars(out.data()), out.size(), params.data()) == 1);
}

}  // namespace

std::string to_string(TokenId id) {
  std::array<std::byte, kIdBytes> bytes{};
  for (std::size_t i = 0; i < kIdBytes; ++i) {
    bytes[i] = static_cast<std::byte>(id.value() >> (8 * (kIdBytes - 1 - i)));
  }
  return to_hex(bytes);
}

Result<TokenId> parse_token_id(std::string_view text) {
  const Result<Bytes> bytes = from_hex(text);
  if (!bytes || bytes->size() != kIdBytes) {
    return rejected("bad-token-id", "a token's id has 16 hexadecimal digits");
  }
  std::uint64_t value = 0;
  for (std::byte b : *bytes) value = (value << 8) | std::to_integer<std::uint64_t>(b);
  return TokenId(value);
}

TokenKey::~TokenKey() { wipe(bytes_); }

JoinToken::~JoinToken() { wipe(secret); }

Result<TokenKey> TokenKey::from_bytes(ByteView bytes) {
  if (bytes.size() != kBytes) return rejected("bad-token-key", "a token's key has 32 bytes");
  TokenKey key;
  std::ranges::copy(bytes, key.bytes_.begin());
  return key;
}

Mac TokenKey::mac(ByteView exporter, const Sha256Digest& request) const {
  STARLING_CHECK(exporter.size() == 32);
  Bytes text = to_bytes(as_bytes(kLabel));
  text.insert(text.end(), exporter.begin(), exporter.end());
  text.insert(text.end(), request.bytes().begin(), request.bytes().end());
  const WipeAtEnd wiped(text);
  Mac mac{};
  std::size_t size = 0;
  STARLING_CHECK(EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, bytes_.data(),
                           bytes_.size(), uchars(text.data()), text.size(), uchars(mac.data()),
                           mac.size(), &size) != nullptr &&
                 size == mac.size());
  return mac;
}

bool TokenKey::verify(ByteView candidate, ByteView exporter, const Sha256Digest& request) const {
  Mac expected = mac(exporter, request);
  const WipeAtEnd wiped(expected);
  return candidate.size() == expected.size() &&
         CRYPTO_memcmp(candidate.data(), expected.data(), expected.size()) == 0;
}

JoinToken JoinToken::make(const Sha256Digest& authority, std::string host, std::uint16_t port) {
  JoinToken token;
  token.authority = authority;
  token.host = std::move(host);
  token.port = port;
  std::uint64_t id = 0;
  do {
    STARLING_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&id), sizeof id) == 1);
  } while (id == 0);
  token.id = TokenId(id);
  STARLING_CHECK(RAND_bytes(uchars(token.secret.data()), kSecretBytes) == 1);
  return token;
}

std::string JoinToken::text() const {
  const std::string address = HostPort{.host = host, .port = port}.text();
  Bytes bytes;
  bytes.reserve(kFixedBytes + address.size());  // no copy is left behind
  bytes.push_back(kVersion);
  bytes.resize(1 + kIdBytes);
  store_little(bytes.data() + 1, id.value());
  bytes.insert(bytes.end(), secret.begin(), secret.end());
  bytes.insert(bytes.end(), authority.bytes().begin(), authority.bytes().end());
  bytes.insert(bytes.end(), as_bytes(address).begin(), as_bytes(address).end());
  const WipeAtEnd wiped(bytes);
  return std::string(kPrefix) + to_base32(bytes);
}

Result<JoinToken> JoinToken::parse(std::string_view text) {
  text = trimmed(text);
  if (text.size() > kTokenBytesMax) return bad_token("it is too long");
  if (!has_prefix(text)) return bad_token("it does not start so");
  Result<Bytes> bytes = from_base32(text.substr(kPrefix.size()));
  if (!bytes) return bad_token("a character was lost or changed");
  const WipeAtEnd wiped(*bytes);
  if (bytes->size() < kFixedBytes) return bad_token("it is too short");
  if (bytes->front() != kVersion) {
    return unsupported("bad-token", "this join token is of a newer form than this program knows");
  }
  const ByteView rest = ByteView(*bytes).subspan(1);
  JoinToken token;
  token.id = TokenId(load_little<std::uint64_t>(rest.data()));
  std::ranges::copy(rest.subspan(kIdBytes, kSecretBytes), token.secret.begin());
  STARLING_ASSIGN(token.authority, Sha256Digest::from_bytes(rest.subspan(kIdBytes + kSecretBytes,
                                                                         Sha256Digest::kBytes)));
  Result<HostPort> address = parse_host_port(as_text(ByteView(*bytes).subspan(kFixedBytes)));
  if (!address || token.id == TokenId()) return bad_token("a character was lost or changed");
  token.host = std::move(address->host);
  token.port = address->port;
  return token;
}

TokenKey JoinToken::key() const {
  TokenKey key;
  hkdf(secret, kLabel, key.bytes_);
  return key;
}

void hide_join_tokens(std::span<char* const> arguments) {
  for (char* const argument : arguments) {
    for (char* at = argument; *at != '\0'; ++at) {
      if (!has_prefix(at)) continue;
      at += kPrefix.size();
      std::fill_n(at, std::strlen(at), '*');
      break;
    }
  }
}

}  // namespace starling::identity
