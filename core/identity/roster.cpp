// SPDX-License-Identifier: Apache-2.0
#include "core/identity/roster.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>

#include "core/identity/host_port.h"

namespace starling::identity {
namespace {

Error bad_roster(const std::string& why) { return rejected("bad-roster", "the roster " + why); }

// A line of the signed text ends where its value ends.
bool is_line(std::string_view text) {
  return std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

bool is_key_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

Result<void> check_roster_name(std::string_view name, std::string_view what) {
  if (const auto good = check_name(name, what); !good) {
    return bad_roster("is malformed: " + good.error().message());
  }
  return {};
}

Result<void> check_settings(const Settings& settings) {
  if (settings.size() > kRosterSettingsMax) {
    return bad_roster("holds more than " + std::to_string(kRosterSettingsMax) + " settings");
  }
  std::unordered_set<std::string_view> seen;
  for (const auto& [key, value] : settings) {
    if (key.empty() || key.size() > kRosterSettingKeyBytesMax ||
        !std::ranges::all_of(key, is_key_character)) {
      return bad_roster(
          "holds a setting whose key is not of lower-case letters, digits, dots, "
          "underscores and hyphens");
    }
    if (value.size() > kRosterSettingValueBytesMax || !is_line(value)) {
      return bad_roster("holds a value for " + key + " that is no line of at most " +
                        std::to_string(kRosterSettingValueBytesMax) + " bytes");
    }
    if (!seen.insert(key).second) return bad_roster("holds the setting " + key + " twice");
  }
  return {};
}

Result<void> check_member(const RosterMember& member) {
  STARLING_TRY(check_roster_name(member.name, "a member"));
  if (member.address.empty()) return {};
  const auto address = parse_host_port(member.address);
  if (address && address->text() == member.address) return {};
  return bad_roster("gives " + member.name + " an address that is not HOST:PORT");
}

Result<void> check_members(const std::vector<RosterMember>& members) {
  if (members.empty() || members.size() > kRosterMembersMax) {
    return bad_roster("holds " + std::to_string(members.size()) + " members; it must be 1 to " +
                      std::to_string(kRosterMembersMax));
  }
  std::unordered_set<std::string_view> names;
  std::unordered_set<std::string_view> keys;
  for (const RosterMember& member : members) {
    STARLING_TRY(check_member(member));
    if (!names.insert(member.name).second) {
      return bad_roster("names " + member.name + " twice");
    }
    if (!keys.insert(as_text(member.key.bytes())).second) {
      return bad_roster("gives " + member.name + " the key of another member");
    }
  }
  return {};
}

Result<void> check_revoked(const std::vector<Sha256Digest>& revoked) {
  if (revoked.size() > kRosterRevokedMax) {
    return bad_roster("revokes more than " + std::to_string(kRosterRevokedMax) + " keys");
  }
  std::unordered_set<std::string_view> seen;
  for (const Sha256Digest& key : revoked) {
    if (!seen.insert(as_text(key.bytes())).second) return bad_roster("revokes a key twice");
  }
  return {};
}

}  // namespace

std::optional<std::uint32_t> Roster::find(std::string_view name) const {
  const auto found = std::ranges::find(members, name, &RosterMember::name);
  if (found == members.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - members.begin());
}

bool Roster::is_member(std::string_view name, const Sha256Digest& key) const {
  const auto index = find(name);
  return index && members[*index].key == key;
}

bool Roster::newer_than(const Roster& other) const {
  return std::tie(epoch, issued) > std::tie(other.epoch, other.issued);
}

bool Roster::replaces(const Roster& held) const {
  const bool renews = std::tie(run, settings, members, revoked) ==
                      std::tie(held.run, held.settings, held.members, held.revoked);
  return newer_than(held) && (epoch > held.epoch || renews);
}

std::string Roster::run_identity() const {
  const auto id = std::ranges::find(settings, kRunIdKey, &Settings::value_type::first);
  return id == settings.end() ? run : run + " " + id->second;
}

void Roster::begin_run(WallTime now) {
  constexpr std::size_t kDigits = 16;
  std::erase_if(settings, [](const auto& setting) { return setting.first == kRunIdKey; });
  std::string text =
      federation + "\n" + run + "\n" + std::to_string(epoch) + "\n" + format_rfc3339(now) + "\n";
  for (const auto& [key, value] : settings) text += key + "=" + value + "\n";
  settings.emplace_back(
      kRunIdKey, sha256(as_bytes(text)).hex().substr(0, kDigits) + "@" + format_rfc3339(now));
}

std::optional<WallTime::duration> Roster::run_age() const {
  const auto id = std::ranges::find(settings, kRunIdKey, &Settings::value_type::first);
  if (id == settings.end()) return std::nullopt;
  const std::size_t at = id->second.find('@');
  if (at == std::string::npos) return std::nullopt;
  const auto time = parse_rfc3339(id->second.substr(at + 1));
  if (!time) return std::nullopt;
  return std::max(issued - *time, WallTime::duration::zero());
}

Settings stopped_settings() { return {{"stopped", "true"}}; }

bool Roster::stopped() const { return settings == stopped_settings(); }

Result<void> Roster::check_current(WallTime now) const {
  if (!expired(now)) return {};
  return rejected("roster-expired", "the roster of epoch " + std::to_string(epoch) +
                                        " expired at " + format_rfc3339(expires) +
                                        "; its issuer must be reached for a new one");
}

Result<void> Roster::validate() const {
  STARLING_TRY(check_roster_name(federation, "the federation"));
  STARLING_TRY(check_roster_name(run, "the run"));
  if (epoch == 0 || epoch > kRosterEpochMax) {
    return bad_roster("is of the epoch " + std::to_string(epoch) + "; it must be 1 to " +
                      std::to_string(kRosterEpochMax));
  }
  if (issued >= expires) return bad_roster("expires before it is issued");
  if (expires - issued > kRosterLifetimeMax) {
    return bad_roster("is valid for more than 365 days");
  }
  STARLING_TRY(check_settings(settings));
  STARLING_TRY(check_revoked(revoked));
  return check_members(members);
}

}  // namespace starling::identity
