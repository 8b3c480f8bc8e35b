// SPDX-License-Identifier: Apache-2.0
// A federation of which a test is the owner, and rosters that it signs.
#pragma once

#include <string>
#include <vector>

#include "core/identity/certificate_authority.h"
#include "core/identity/roster.h"

namespace starling::testing {

inline const WallTime kRosterTime = *parse_rfc3339("2026-11-20T09:00:00Z");

struct RosterOwner {
  identity::CertificateAuthority authority =
      *identity::CertificateAuthority::make({.federation = "kitchen"}, kRosterTime);
  identity::Credentials credentials =
      *authority.issue_credentials({.role = identity::Role::kIssuer, .name = "owner"}, kRosterTime);

  static identity::RosterMember member(const std::string& name, const std::string& address = "") {
    return {.name = name, .key = sha256(as_bytes(name)), .address = address};
  }
  identity::SignedRoster sign(std::uint64_t epoch, std::vector<identity::RosterMember> members,
                              Duration later = {}) const {
    const WallTime issued =
        kRosterTime + std::chrono::duration_cast<std::chrono::milliseconds>(later);
    return identity::SignedRoster::sign({.federation = "kitchen",
                                         .run = "faces",
                                         .epoch = epoch,
                                         .issued = issued,
                                         .expires = issued + std::chrono::minutes(10),
                                         .settings = {},
                                         .members = std::move(members)},
                                        credentials)
        .value();
  }
  // About `bytes` long.
  identity::SignedRoster sign_large(std::uint64_t epoch, std::size_t bytes) const {
    std::vector<identity::RosterMember> members;
    for (std::size_t i = 0; i < bytes / 352; ++i) {
      std::string host(250, 'a');
      for (std::size_t dot = 60; dot < host.size(); dot += 61) host[dot] = '.';
      members.push_back(member("client-" + std::to_string(10'000 + i), host + ":7000"));
    }
    return sign(epoch, std::move(members));
  }
};

}  // namespace starling::testing
