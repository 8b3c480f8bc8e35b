// SPDX-License-Identifier: Apache-2.0
// A gossip network to be run by real devices, as its NET.toml says it, and the list of members that
// an owner writes by hand. Network and nodes of the simulated world mean nothing to real ones, but
// travel along: one file serves both.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/service/state_directory.h"
#include "core/base/error.h"
#include "core/base/settings.h"
#include "core/identity/roster.h"
#include "gossip/training/options.h"

namespace starling::coordinator {

struct GossipRun {
  std::string name;
  Settings settings;  // as NetOptions::device_settings()
};

// "bad-name", and what the binder says of a text of NET.toml.
[[nodiscard]] Result<GossipRun> parse_gossip_run(std::string name, std::string_view text,
                                                 std::string_view file_name);
std::string gossip_run_to_toml(gossip::NetOptions options);  // every key with its value

// The settings of a roster of so many members: `topology.nodes` is their number.
Settings settings_for(Settings settings, std::size_t members);
// What every member would find out by itself, and then could not train: "topology-impossible" where
// so many nodes cannot form the run's graph, "algorithm-topology" and the like where the algorithm
// does not work on it.
[[nodiscard]] Result<void> check_network(const Settings& settings, std::size_t members);

// What is allowed for so many members and may not do what the operator expects: a sentence each.
std::vector<std::string> network_warnings(const Settings& settings, std::size_t members);
// What a run asks of each member's data and device.
struct MemberNeeds {
  std::string model_kind;
  std::size_t columns = 0;  // that it names (data.columns); 0: it names none
};
// Fails as check_network for settings of no network.
[[nodiscard]] Result<MemberNeeds> member_needs(const Settings& settings);

// Lines "NAME KEY [HOST:PORT]", '#' begins a comment, no name, key or address twice;
// "members-malformed" with the line.
[[nodiscard]] Result<std::vector<identity::RosterMember>> parse_members(std::string_view text,
                                                                        std::string_view file_name);

// The keys whose signatures on later rosters do not count, as StateDirectory::revoked() lists them;
// none without the file. "revoked-malformed" with the line.
[[nodiscard]] Result<std::vector<Sha256Digest>> load_revoked(const StateDirectory& state);
// Those that `held` revokes, then those of the list that it does not: what a roster that takes its
// place revokes. `held` may be null.
std::vector<Sha256Digest> revoked_after(const identity::Roster* held,
                                        std::span<const Sha256Digest> listed);

}  // namespace starling::coordinator
