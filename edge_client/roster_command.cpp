// SPDX-License-Identifier: Apache-2.0
#include "edge_client/roster_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <ostream>

#include "core/base/counted.h"
#include "core/base/durable_file.h"
#include "gossip/fallback/fallback_terms.h"

namespace starling::edge_client {
namespace {

namespace fs = std::filesystem;
using identity::IdentityDirectory;
using identity::Roster;
using identity::SignedRoster;

constexpr std::string_view kSign =
    "starling-coordinator gossip sign NET.toml --members FILE --to FILE";

// As PeerNode judges: a clock that was set back does not revive what has expired.
WallTime checking_time(WallTime now, const IdentityDirectory& self) {
  return std::max(now, self.last_authenticated());
}

// What the owner can do about a file that is not believed.
std::string next_step(const std::string& code) {
  if (code == "bad-roster" || code == "roster-signature") {
    return "; copy it once more from where it was signed";
  }
  if (code == "roster-signer" || code == "roster-federation") {
    return fmt::format("; have it signed with the authority's key of this federation: {}", kSign);
  }
  if (code == "file-missing") return fmt::format("; the owner makes one: {}", kSign);
  return "";
}

Result<SignedRoster> read_roster(const fs::path& file, const IdentityDirectory& self) {
  const auto bytes = read_file(file, identity::kRosterBytesMax);
  const auto roster =
      bytes ? gossip::verify_roster(*bytes, self) : Result<SignedRoster>(bytes.error());
  if (roster) return *roster;
  const Error error = bytes ? roster.error().within(file.string()) : roster.error();
  return error.with_message(error.message() + next_step(error.code()));
}

Result<void> check_current(const Roster& roster, const fs::path& file, WallTime now) {
  if (!roster.expired(now)) return {};
  return rejected(
      "roster-expired",
      fmt::format("{}: the roster expired at {}, and it is {} now; have it signed "
                  "again: {}",
                  file.string(), format_rfc3339(roster.expires), format_rfc3339(now), kSign));
}

Result<void> check_member(const Roster& roster, const fs::path& file,
                          const IdentityDirectory& self) {
  if (gossip::is_member(roster, self)) return {};
  const std::string& name = self.identity().name;
  return rejected(
      "not-a-member",
      fmt::format("{}: {} is {}; its line for 'gossip sign --members' is: {} {} [HOST:PORT]",
                  file.string(), name,
                  roster.find(name) ? "in the roster with another key" : "not in the roster", name,
                  self.credentials().certificate.public_key_digest().hex()));
}

// False: it is the one that is held. What cannot be believed any more stands in nobody's way: the
// peer does not use it either.
Result<bool> is_new(const SignedRoster& fresh, const fs::path& file, const StateDirectory& state,
                    const IdentityDirectory& self) {
  SystemDisk disk;
  const auto held = gossip::load_held_roster(disk, state.gossip(), self);
  if (!held || !*held) return true;
  if (std::ranges::equal((*held)->bytes().view(), fresh.bytes().view())) return false;
  const auto follows = fresh.may_follow(**held);
  if (follows) return true;
  const std::string code = follows.error().code();
  if (code != "roster-old" && code != "roster-changed")
    return follows.error().within(file.string());
  const Roster& ours = (*held)->roster();
  return rejected(
      "roster-older",
      fmt::format("{}: it is epoch {} of {}, issued {}, but this device holds epoch {} of {}, "
                  "issued {}; have it signed as a later one: {} --epoch {}",
                  file.string(), fresh.roster().epoch, fresh.roster().run,
                  format_rfc3339(fresh.roster().issued), ours.epoch, ours.run,
                  format_rfc3339(ours.issued), kSign, ours.epoch + 1));
}

// A process that runs holds a roster of its own in memory and would write it over this one.
Result<StateLock> lock_out_process(const StateDirectory& state) {
  auto lock = StateLock::acquire(state);
  if (lock || lock.error().code() != "already-running") return lock;
  return rejected("already-running",
                  fmt::format("process {} runs on {}; stop it, install the roster, start it again",
                              StateLock::holder(state).value_or(0), state.path.string()));
}

// The device's part in it, as a sentence.
std::string describe_part(const Roster& roster, const IdentityDirectory& self) {
  const std::string& name = self.identity().name;
  if (!gossip::is_member(roster, self)) return name + " is not a member";
  const std::string& address = roster.members[*roster.find(name)].address;
  if (address.empty()) return name + " is a member that no other dials";
  return fmt::format("{} is a member that others dial at {}", name, address);
}

std::string_view purpose(const Roster& roster) {
  if (roster.stopped()) return "stopped";
  return gossip::is_fallback(roster.settings) ? "fallback" : "running";
}

void print_text(const SignedRoster& held, const IdentityDirectory& self, WallTime now,
                std::ostream& out) {
  const Roster& roster = held.roster();
  out << fmt::format("epoch {} of {} with {}, {} {}, signed by {} {}; {}", roster.epoch, roster.run,
                     counted(roster.members.size(), "member"),
                     roster.expired(now) ? "expired at" : "valid until",
                     format_rfc3339(roster.expires), identity::to_string(held.signer().role),
                     held.signer().name, describe_part(roster, self));
  if (roster.stopped()) out << "; it tells the members to end";
  if (gossip::is_fallback(roster.settings)) out << "; it is for when the coordinator is gone";
  out << '\n';
}

void print_json(const SignedRoster& held, const IdentityDirectory& self, WallTime now,
                bool installed, std::ostream& out) {
  const Roster& roster = held.roster();
  boost::json::array members;
  for (const identity::RosterMember& member : roster.members) {
    members.push_back(boost::json::object{
        {"name", member.name},
        {"key", member.key.hex()},
        {"address", member.address.empty() ? boost::json::value(nullptr)
                                           : boost::json::value(member.address)}});
  }
  boost::json::array revoked;
  for (const Sha256Digest& key : roster.revoked) revoked.emplace_back(key.hex());
  out << boost::json::serialize(boost::json::object{{"run", roster.run},
                                                    {"state", purpose(roster)},
                                                    {"epoch", roster.epoch},
                                                    {"issued", format_rfc3339(roster.issued)},
                                                    {"expires", format_rfc3339(roster.expires)},
                                                    {"expired", roster.expired(now)},
                                                    {"signer", held.signer().name},
                                                    {"client", self.identity().name},
                                                    {"member", gossip::is_member(roster, self)},
                                                    {"installed", installed},
                                                    {"members", std::move(members)},
                                                    {"revoked", std::move(revoked)}})
      << '\n';
}

Result<SignedRoster> held_roster(const StateDirectory& state, const IdentityDirectory& self) {
  const std::string bring = state.command("roster FILE");
  SystemDisk disk;
  auto held = gossip::load_held_roster(disk, state.gossip(), self);
  if (held && *held) return std::move(**held);
  if (held) {
    return rejected("no-roster",
                    fmt::format("{} holds no roster; it comes from the coordinator's 'gossip "
                                "start', or from a file that the owner signed: {}",
                                self.identity().name, bring));
  }
  const Error error = held.error();
  return error.with_message(
      fmt::format("{}; the device does not use it; bring another: {}", error.message(), bring));
}

}  // namespace

Result<SignedRoster> install_roster(const fs::path& file, const StateDirectory& state,
                                    WallTime now) {
  STARLING_ASSIGN(const auto self, IdentityDirectory::load(state.identity()));
  STARLING_ASSIGN(const StateLock lock, lock_out_process(state));
  STARLING_ASSIGN(auto roster, read_roster(file, self));
  STARLING_TRY(check_current(roster.roster(), file, checking_time(now, self)));
  STARLING_TRY(check_member(roster.roster(), file, self));
  STARLING_ASSIGN(const bool fresh, is_new(roster, file, state, self));
  SystemDisk disk;
  if (fresh) STARLING_TRY(gossip::hold_roster(disk, state.gossip(), roster));
  return roster;
}

int roster(const fs::path& file, const StateDirectory& state, WallTime now,
           config::OutputFormat format, std::ostream& out, std::ostream& err) {
  if (const auto own = state.expect_no_coordinator(); !own) return config::report(own.error(), err);
  const auto self = IdentityDirectory::load(state.identity());
  if (!self) return config::report(self.error(), err);
  const bool installs = !file.empty();
  const auto held = installs ? install_roster(file, state, now) : held_roster(state, *self);
  if (!held) return config::report(held.error(), err);
  const WallTime checked_at = checking_time(now, *self);
  if (format == config::OutputFormat::kJson) {
    print_json(*held, *self, checked_at, installs, out);
  } else {
    print_text(*held, *self, checked_at, out);
    if (installs) out << fmt::format("installed; run: {}\n", state.command("start"));
  }
  return static_cast<int>(config::ExitCode::kOk);
}

}  // namespace starling::edge_client
