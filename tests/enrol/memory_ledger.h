// SPDX-License-Identifier: Apache-2.0
// The rules of EnrolmentLedger in a map, with a failure to order.
#pragma once

#include <map>
#include <optional>

#include "core/enrol/enrolment_ledger.h"

namespace starling::testing {

class MemoryLedger final : public enrol::EnrolmentLedger {
 public:
  struct Token {
    identity::TokenKey key;
    enrol::Grant grant;
    WallTime expires;
    int bad_macs = 0;
    std::optional<Sha256Digest> used_by = {};
    std::string certificate = {};
  };

  Result<identity::TokenKey> key(identity::TokenId id) override {
    ++calls;
    const auto found = tokens.find(id.value());
    if (found == tokens.end()) return rejected("token-unknown", "there is no such token");
    return found->second.key;
  }

  Result<void> record_bad_mac(identity::TokenId id) override {
    ++tokens.at(id.value()).bad_macs;
    return {};
  }

  Result<std::string> redeem(identity::TokenId id, const Sha256Digest& request, WallTime now,
                             const Issue& issue) override {
    Token& token = tokens.at(id.value());
    if (token.bad_macs >= kBadMacsMax) return rejected("token-locked", "the token is locked");
    if (now >= token.expires) return rejected("token-expired", "the token has expired");
    if (token.used_by && *token.used_by != request) {
      return rejected("token-used", "the token has been used by another device");
    }
    if (!token.used_by) {
      STARLING_ASSIGN(token.certificate, issue(token.grant));
      token.used_by = request;
      ++identities;
    }
    if (lose_next_reply) {
      lose_next_reply = false;
      return internal("database-gone", "committed, and then the lights went out");
    }
    return token.certificate;
  }

  std::map<std::uint64_t, Token> tokens;
  int calls = 0;
  int identities = 0;
  bool lose_next_reply = false;
};

}  // namespace starling::testing
