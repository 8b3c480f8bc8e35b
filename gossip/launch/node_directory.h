// SPDX-License-Identifier: Apache-2.0
// The state directory of a launched peer, as `starling-edge join` and its owner would have made it:
// an identity that the launcher's own authority issued, and an edge.toml.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/identity/certificate_authority.h"
#include "core/identity/host_port.h"
#include "core/identity/roster.h"
#include "gossip/training/options.h"

namespace starling::gossip {

using graph::Node;

// A node as a process.
struct NodePlace {
  std::string name;         // node-0001, ...
  std::string address;      // numeric, of loopback, its own: it listens there and dials from there
  std::uint16_t port = 0;   // where it listens
  std::uint16_t shown = 0;  // where others dial: the proxy's, or the same
  std::filesystem::path directory;
  std::filesystem::path log;
};

// Names, addresses and free ports. Addresses are 127.S.x.y; S differs between launchers that run at
// the same time, so that they do not meet. "cannot-listen" where the system has no such addresses.
[[nodiscard]] Result<std::vector<NodePlace>> plan_nodes(Node nodes, unsigned launcher,
                                                        const std::filesystem::path& states,
                                                        const std::filesystem::path& logs);

// Makes the directory and returns what the roster says of the node. Its part of the data is the
// one that simulate gives to this node; with a trainer's command it has none.
[[nodiscard]] Result<identity::RosterMember> make_node_directory(
    const NodePlace& place, Node node, const NetOptions& options,
    const std::vector<std::string>& trainer, const identity::CertificateAuthority& authority,
    const identity::HostPort& issuer, WallTime now);

// edge.toml of the node.
[[nodiscard]] Result<std::string> edge_toml(const NodePlace& place, Node node,
                                            const NetOptions& options,
                                            const std::vector<std::string>& trainer);

}  // namespace starling::gossip
