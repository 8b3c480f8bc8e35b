// SPDX-License-Identifier: Apache-2.0
// Peers with identities of one authority, addresses of their own on loopback, and the signed roster
// that names them: for tests that run peers as processes or threads.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/identity/roster.h"

namespace starling::testing {

struct PeerPlace {
  std::string address;  // numeric, its own
  std::uint16_t port = 0;
  std::filesystem::path identity;  // an identity::IdentityDirectory
};

struct PeerPlaces {
  std::vector<PeerPlace> peers;
  std::filesystem::path roster;  // a SignedRoster of epoch 1, of all of them, in order
};

// Writes all of it under `directory`; fails the test where it cannot.
PeerPlaces make_peer_places(const std::filesystem::path& directory, std::uint32_t peers);

}  // namespace starling::testing
