// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gossip_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "coordinator/job_text.h"
#include "core/identity/identity.h"
#include "topologies/topology.h"

namespace starling::coordinator {
namespace {

constexpr std::string_view kNodes = "topology.nodes";

Result<identity::RosterMember> parse_member(const std::string& line) {
  std::istringstream words(line);
  std::string key;
  std::string surplus;
  identity::RosterMember member;
  words >> member.name >> key >> member.address >> surplus;
  STARLING_TRY(identity::check_name(member.name, "a member"));
  STARLING_ASSIGN(member.key, Sha256Digest::parse(key));
  if (surplus.empty()) return member;
  return rejected("members-malformed", "there is more than NAME KEY HOST:PORT");
}

}  // namespace

Result<GossipRun> parse_gossip_run(std::string name, std::string_view text,
                                   std::string_view file_name) {
  STARLING_TRY(identity::check_name(name, "the run"));
  gossip::NetOptions options;
  config::Binder binder;
  options.bind(binder);
  STARLING_TRY(binder.read_toml(text, file_name));
  STARLING_TRY(options.validate());
  return GossipRun{std::move(name), binder.settings()};
}

std::string gossip_run_to_toml(gossip::NetOptions options) {
  config::Binder binder;
  options.bind(binder);
  return to_toml(binder);
}

Settings settings_for(Settings settings, std::size_t members) {
  for (auto& [key, value] : settings) {
    if (key == kNodes) value = std::to_string(members);
  }
  return settings;
}

Result<void> check_topology(const Settings& settings, std::size_t members) {
  gossip::NetOptions options;
  STARLING_TRY(from_settings("topology", settings, options.topology));
  const auto made = topologies::Topology::make({.spec = options.topology.spec,
                                                .nodes = static_cast<std::uint32_t>(members),
                                                .mixing = options.topology.mixing});
  if (made) return {};
  return made.error().within(fmt::format("{} members", members));
}

Result<std::vector<identity::RosterMember>> parse_members(std::string_view text,
                                                          std::string_view file_name) {
  std::istringstream lines{std::string(text)};
  std::vector<identity::RosterMember> members;
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto member = parse_member(line);
    if (!member) {
      return rejected("members-malformed",
                      fmt::format("{}:{}: {}; a line is NAME KEY [HOST:PORT]", file_name, number,
                                  member.error().message()));
    }
    members.push_back(std::move(*member));
  }
  return members;
}

}  // namespace starling::coordinator
