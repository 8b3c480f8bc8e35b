// SPDX-License-Identifier: Apache-2.0
#include "core/identity/join_token.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/base/rng.h"

namespace starling::identity {
namespace {

JoinToken example() {
  JoinToken token;
  token.id = TokenId(0x0123456789ABCDEFULL);
  for (std::size_t i = 0; i < token.secret.size(); ++i) token.secret[i] = static_cast<std::byte>(i);
  token.authority = sha256(as_bytes("authority"));
  token.host = "10.0.0.1";
  token.port = 7443;
  return token;
}

TEST(JoinToken, ReadsWhatItWrites) {
  for (const char* host : {"10.0.0.1", "fl.example.org", "::1"}) {
    JoinToken token = example();
    token.host = host;
    const auto parsed = JoinToken::parse("  " + token.text() + "\n");
    ASSERT_TRUE(parsed) << host;
    EXPECT_EQ(parsed->id, token.id);
    EXPECT_EQ(parsed->secret, token.secret);
    EXPECT_EQ(parsed->authority, token.authority);
    EXPECT_EQ(parsed->host, host);
    EXPECT_EQ(parsed->port, token.port);
  }
  EXPECT_TRUE(example().text().starts_with("STJ1-"));
  EXPECT_LE(example().text().size(), 130U);
}

template <class Secret>
void expect_wiped(const Secret& secret, ByteView content) {
  alignas(Secret) std::array<std::byte, sizeof(Secret)> place{};
  const auto is_there = [&] { return !std::ranges::search(place, content).empty(); };
  auto* copy = new (place.data()) Secret(secret);
  EXPECT_TRUE(is_there());
  std::destroy_at(copy);
  EXPECT_FALSE(is_there());
}

TEST(JoinToken, IsWipedWhereItEnds) {
  const JoinToken token = example();
  expect_wiped(token, token.secret);
  const TokenKey key = token.key();
  expect_wiped(key, key.bytes());
}

TEST(JoinToken, TakesLowerCase) {
  std::string text = example().text();
  for (char& c : text) c = static_cast<char>(std::tolower(c));
  EXPECT_TRUE(JoinToken::parse(text));
}

TEST(JoinToken, DrawsIdsAndSecretsAnew) {
  const JoinToken a = JoinToken::make(sha256(as_bytes("x")), "h", 1);
  const JoinToken b = JoinToken::make(sha256(as_bytes("x")), "h", 1);
  EXPECT_NE(a.id, b.id);
  EXPECT_NE(a.secret, b.secret);
  EXPECT_NE(a.id, TokenId());
}

TEST(JoinToken, RefusesHostileTexts) {
  const std::string good = example().text();
  for (std::size_t size = 0; size < 96; ++size) {
    EXPECT_FALSE(JoinToken::parse(good.substr(0, size))) << size;
  }
  EXPECT_FALSE(JoinToken::parse("STJ2-" + good.substr(5)));
  EXPECT_FALSE(JoinToken::parse(good + "!"));
  EXPECT_FALSE(JoinToken::parse("STJ1-" + std::string(100000, 'A')));
  EXPECT_FALSE(JoinToken::parse(good.substr(0, 40) + " " + good.substr(40)));
  // Any text at all is refused or read, never anything else.
  Rng rng({.seed = 1, .purpose = Purpose::kTest});
  for (int i = 0; i < 2000; ++i) {
    std::string text = "STJ1-";
    const std::uint64_t size = rng.below(160);
    for (std::uint64_t k = 0; k < size; ++k)
      text.push_back("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[rng.below(32)]);
    const auto parsed = JoinToken::parse(text);
    EXPECT_TRUE(parsed || parsed.error().code() == "bad-token");
  }
}

TEST(JoinToken, RefusesANewerVersionByName) {
  // The version is the first byte, so "AH" is 00000 001|11 and "AL" 00000 010|11.
  std::string text = example().text();
  ASSERT_EQ(text.substr(5, 2), "AH");
  text[6] = 'L';
  const auto parsed = JoinToken::parse(text);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().kind(), ErrorKind::kUnsupported);
}

TEST(TokenId, HasOneText) {
  EXPECT_EQ(to_string(TokenId(0x0123456789ABCDEFULL)), "0123456789abcdef");
  EXPECT_EQ(*parse_token_id("0123456789abcdef"), TokenId(0x0123456789ABCDEFULL));
  EXPECT_FALSE(parse_token_id("0123456789abcde"));
  EXPECT_FALSE(parse_token_id("0123456789abcdef00"));
}

TEST(JoinToken, IsHiddenAmongTheArguments) {
  std::vector<std::string> words = {"starling-edge", "join", example().text(),
                                    "--state",       "STJ",  "--token=stj1-abc"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  const std::size_t letters = words[2].size() - std::strlen("STJ1-");
  hide_join_tokens(arguments);
  EXPECT_EQ(words,
            (std::vector<std::string>{"starling-edge", "join", "STJ1-" + std::string(letters, '*'),
                                      "--state", "STJ", "--token=stj1-***"}));
}

// The figures come from an independent HKDF and HMAC (Python's hmac and hashlib).
TEST(TokenKey, IsTheHkdfOfTheSecret) {
  EXPECT_EQ(to_hex(example().key().bytes()),
            "6d65705dabeaaad17e420173da9b806ff74be903318d9da13fa3d99efa330f3d");
}

TEST(TokenKey, BindsTheMacToChannelAndRequest) {
  const TokenKey key = example().key();
  const Bytes exporter(32, std::byte{0xAB});
  const Sha256Digest request = sha256(as_bytes("request"));
  const Mac mac = key.mac(exporter, request);
  EXPECT_EQ(to_hex(mac), "a4d0040dc67edb2576dc5584c7e9cc1a46ba74e194186b7c6757b66ad65a1b6a");
  EXPECT_TRUE(key.verify(mac, exporter, request));
  for (std::size_t i = 0; i < mac.size(); ++i) {
    Mac bad = mac;
    bad[i] ^= std::byte{1};
    EXPECT_FALSE(key.verify(bad, exporter, request));
  }
  EXPECT_FALSE(key.verify(ByteView(mac).first(31), exporter, request));
  EXPECT_FALSE(key.verify(ByteView(), exporter, request));
  EXPECT_FALSE(key.verify(mac, Bytes(32, std::byte{0xAC}), request));
  EXPECT_FALSE(key.verify(mac, exporter, sha256(as_bytes("another"))));
  EXPECT_FALSE(JoinToken::make(sha256(as_bytes("x")), "h", 1).key().verify(mac, exporter, request));
}

TEST(TokenKey, ComesBackFromItsBytes) {
  const TokenKey key = example().key();
  EXPECT_EQ(to_hex(TokenKey::from_bytes(key.bytes())->bytes()), to_hex(key.bytes()));
  EXPECT_FALSE(TokenKey::from_bytes(key.bytes().first(31)));
}

}  // namespace
}  // namespace starling::identity
