// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/gossip_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "coordinator/job/job_text.h"
#include "core/base/durable_file.h"
#include "core/base/nearest_name.h"
#include "core/identity/host_port.h"
#include "core/identity/identity.h"
#include "gossip/algorithms/make_algorithm.h"
#include "gossip/algorithms/robust_fit.h"
#include "gossip/fallback/fallback_terms.h"
#include "gossip/training/key_warnings.h"
#include "gossip/training/peer_graph.h"

namespace starling::coordinator {
namespace {

constexpr std::string_view kNodes = "topology.nodes";

struct Line {
  std::size_t number = 0;  // from 1
  std::string text;
};

// Those that say something: '#' begins a comment.
std::vector<Line> lines_of(std::string_view text) {
  std::istringstream all{std::string(text)};
  std::vector<Line> lines;
  std::string line;
  for (std::size_t number = 1; std::getline(all, line); ++number) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back({number, line});
  }
  return lines;
}

Result<identity::RosterMember> parse_member(const std::string& line) {
  std::istringstream words(line);
  std::string key;
  std::string surplus;
  identity::RosterMember member;
  words >> member.name >> key >> member.address >> surplus;
  STARLING_TRY(identity::check_name(member.name, "a member"));
  const auto digest = Sha256Digest::parse(key);
  if (!digest) {
    return wrong_setting("members-malformed",
                         fmt::format("the key, as 'client show' prints it, is {} hexadecimal "
                                     "digits, and {}",
                                     2 * Sha256Digest::kBytes,
                                     key.empty() ? "there is none" : "not " + printable(key, 80)));
  }
  member.key = *digest;
  if (!surplus.empty()) {
    return wrong_setting("members-malformed", "there is more than NAME KEY HOST:PORT");
  }
  if (member.address.empty()) return member;
  STARLING_ASSIGN(const auto address, identity::parse_dialled_address(member.address));
  member.address = address.text();
  return member;
}

// Names, keys and addresses, with the line on which each stands.
class Known {
 public:
  Result<void> add(const identity::RosterMember& member, std::size_t line) {
    const auto [name, fresh_name] = lines_.emplace(member.name, line);
    if (!fresh_name) return twice(member.name, name->second);
    const auto [key, fresh_key] = lines_.emplace("key " + member.key.hex(), line);
    if (!fresh_key) return twice("the key of " + member.name, key->second);
    if (member.address.empty()) return {};
    const auto [address, fresh_address] = lines_.emplace("at " + member.address, line);
    if (!fresh_address) return twice("the address " + member.address, address->second);
    return {};
  }

 private:
  static Error twice(const std::string& what, std::size_t line) {
    return wrong_setting("members-malformed",
                         fmt::format("{} stands in line {} already", printable(what), line));
  }

  std::map<std::string, std::size_t> lines_;  // a name holds no space
};

Result<gossip::NetOptions> read_options(const Settings& settings) {
  Settings keys;
  for (const auto& setting : settings) {
    const bool is_key = !gossip::is_fallback({setting}) && setting.first != identity::kRunIdKey;
    if (is_key) keys.push_back(setting);
  }
  gossip::NetOptions options;
  config::Binder binder;
  options.bind(binder);
  STARLING_TRY(binder.set(keys));
  return options;
}

// As gossip::derive_run judges it for members that may lose messages.
Result<void> check_options(const gossip::NetOptions& options, std::size_t members) {
  STARLING_ASSIGN(const auto graph,
                  gossip::make_peer_graph(options, static_cast<std::uint32_t>(members)));
  return gossip::check_fit(
      options.algorithm,
      {.topology = graph.get(), .lossy = true, .robust = options.robust, .by_peers = true});
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
  if (options.model.is_external() && !options.model.initial.empty()) {
    return wrong_setting("setting-invalid",
                         "model.initial is a file of this machine, and the devices' trainers make "
                         "the model that a gossip run begins with: leave it out");
  }
  return GossipRun{std::move(name), options.device_settings()};
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

Result<void> check_network(const Settings& settings, std::size_t members) {
  STARLING_ASSIGN(const gossip::NetOptions options, read_options(settings));
  auto fits = check_options(options, members);
  if (fits || fits.error().code() == "topology-spec") return fits;  // that of any number of them
  return fits.error().within(fmt::format("{} {}", members, members == 1 ? "member" : "members"));
}

std::vector<std::string> network_warnings(const Settings& settings, std::size_t members) {
  const auto options = read_options(settings);
  if (!options) return {};  // refused elsewhere
  auto sentences = gossip::warnings_of_keys(*options);
  const auto graph = gossip::make_peer_graph(*options, static_cast<std::uint32_t>(members));
  if (!graph || !*graph) return sentences;
  std::ranges::copy(gossip::robust_warnings(options->robust, **graph),
                    std::back_inserter(sentences));
  return sentences;
}

Result<MemberNeeds> member_needs(const Settings& settings) {
  STARLING_ASSIGN(const gossip::NetOptions options, read_options(settings));
  return MemberNeeds{.model_kind = options.model.kind, .columns = options.data.columns.size()};
}

Result<std::vector<identity::RosterMember>> parse_members(std::string_view text,
                                                          std::string_view file_name) {
  std::vector<identity::RosterMember> members;
  Known known;
  for (const auto& [number, line] : lines_of(text)) {
    auto member = parse_member(line);
    const Result<void> good = member ? known.add(*member, number) : member.error();
    if (!good) {
      return wrong_setting("members-malformed",
                           fmt::format("{}:{}: {}; a line is NAME KEY [HOST:PORT]", file_name,
                                       number, good.error().message()));
    }
    members.push_back(std::move(*member));
  }
  if (!members.empty()) return members;
  return wrong_setting(
      "members-malformed",
      fmt::format("{} names no members; a line is NAME KEY [HOST:PORT]", file_name));
}

Result<std::vector<Sha256Digest>> load_revoked(const StateDirectory& state) {
  constexpr std::size_t kBytesMax = 1 << 20;
  const auto text = read_text_file(state.revoked().string(), kBytesMax);
  if (!text && text.error().code() == "file-missing") return std::vector<Sha256Digest>();
  if (!text) return text.error();
  std::vector<Sha256Digest> keys;
  for (const auto& [number, line] : lines_of(*text)) {
    std::istringstream words(line);
    std::string word;
    std::string surplus;
    words >> word;
    const auto key = Sha256Digest::parse(word);
    if (!key || words >> surplus) {
      return wrong_setting("revoked-malformed",
                           fmt::format("{}:{}: a line is the SHA-256 of a public key, and '#' "
                                       "begins a comment",
                                       state.revoked().string(), number));
    }
    if (std::ranges::find(keys, *key) == keys.end()) keys.push_back(*key);
  }
  return keys;
}

std::vector<Sha256Digest> revoked_after(const identity::Roster* held,
                                        std::span<const Sha256Digest> listed) {
  std::vector<Sha256Digest> keys;
  if (held != nullptr) keys = held->revoked;
  for (const Sha256Digest& key : listed) {
    if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  }
  return keys;
}

}  // namespace starling::coordinator
