// SPDX-License-Identifier: Apache-2.0
#include "tests/gossip_peer/peer_places.h"

#include <fmt/format.h>
#include <unistd.h>

#include "core/base/check.h"
#include "core/identity/certificate_authority.h"
#include "core/identity/identity_directory.h"
#include "gossip/launch/node_directory.h"

namespace starling::testing {

using identity::Role;

PeerPlaces make_peer_places(const std::filesystem::path& directory, std::uint32_t peers) {
  const WallTime now = SystemClock().wall_now();
  const auto authority = identity::CertificateAuthority::make({.federation = "kitchen"}, now);
  STARLING_CHECK(authority.has_value());
  const auto issue = [&](Role role, const std::string& name, std::vector<std::string> addresses) {
    auto credentials = authority->issue_credentials(
        {.role = role, .name = name, .addresses = std::move(addresses)}, now);
    STARLING_CHECK(credentials.has_value());
    return std::move(*credentials);
  };
  const auto nodes =
      gossip::plan_nodes(peers, static_cast<unsigned>(::getpid()), directory, directory);
  STARLING_CHECK(nodes.has_value());
  PeerPlaces places{.peers = {}, .roster = directory / "roster"};
  identity::Roster roster{.federation = "kitchen", .run = "run-1", .epoch = 1};
  roster.issued = now;
  roster.expires = now + std::chrono::hours(1);
  for (const gossip::NodePlace& node : *nodes) {
    const auto credentials = issue(Role::kPeer, node.name, {node.address});
    const auto saved = identity::IdentityDirectory::save(node.directory / "identity", credentials,
                                                         {node.address, node.port});
    STARLING_CHECK(saved.has_value());
    places.peers.push_back({node.address, node.port, node.directory / "identity"});
    roster.members.push_back({node.name, credentials.certificate.public_key_digest(),
                              fmt::format("{}:{}", node.address, node.port)});
  }
  const auto signed_roster =
      identity::SignedRoster::sign(roster, issue(Role::kIssuer, "coordinator", {}));
  STARLING_CHECK(signed_roster && signed_roster->save(places.roster));
  return places;
}

}  // namespace starling::testing
