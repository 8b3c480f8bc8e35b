// SPDX-License-Identifier: Apache-2.0
// gossip start | show | stop | sign
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>

#include "coordinator/commands/commands.h"
#include "coordinator/commands/text_table.h"
#include "coordinator/service/gossip_run.h"
#include "coordinator/service/state_directory.h"
#include "core/base/counted.h"
#include "core/base/durable_file.h"
#include "core/base/escape_controls.h"
#include "core/identity/certificate_authority.h"

namespace starling::coordinator {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t kMembersBytesMax = 4 << 20;
constexpr std::string_view kSeed = "seed";

// What `start` and `sign` share.
struct NetFlags {
  OperatorFlags common;
  std::string file;
  std::string run;
  std::string expires;
  gossip::NetOptions options;
  config::Binder binder;

  // The file and the flags, as one text.
  Result<std::string> read() {
    STARLING_TRY(binder.apply(file));
    STARLING_TRY(options.validate());
    return gossip_run_to_toml(options);
  }
  std::string run_name() const {
    if (!run.empty()) return run;
    return file.empty() ? "gossip" : fs::path(file).stem().string();
  }
};

void note_what_is_simulated(const NetFlags& flags, CommandContext& context) {
  note_simulated_sections(flags.binder, context);
  if (flags.binder.says("attack")) note_simulated("[attack]", context);
  // Real devices match the columns of their own files.
  if (flags.binder.says("data", "data.columns")) note_simulated("[data]", context);
  const bool says_nodes = flags.options.topology.nodes != gossip::NetOptions().topology.nodes;
  if (says_nodes) note_simulated("topology.nodes", context);
  if (flags.options.run.virtual_time > Duration::zero()) note_simulated("virtual-time", context);
}

struct SignFlags : NetFlags {
  std::string members;
  std::string to;
  std::uint64_t epoch = 0;
  std::vector<std::string> restored;
};

// Of one that is not trained any more, what to do about it too.
std::string describe_state(const json::value& network) {
  const std::string state = cell(network, "state");
  const bool refused = state == "refused";
  std::string text =
      fmt::format("{} {}: epoch {}, issued {}, valid until {}\n", cell(network, "run"),
                  refused ? "cannot go on" : "is " + state, cell(network, "epoch"),
                  time_cell(network, "issued"), time_cell(network, "expires"));
  const std::string problem = cell(network, "problem");
  if (problem != "-") {
    text += fmt::format("{}: {}\n", cell(network, "run"), problem);
  } else if (refused) {
    text += fmt::format("{}: all its members refuse to train, and say why below\n",
                        cell(network, "run"));
  }
  return text;
}

std::string describe(const json::value& network, const CommandContext& context) {
  std::string text = describe_state(network);
  // Right-aligned cells are never broken; with an address of IPv4 it fits 80 columns.
  TextTable table({"NAME", "ADDRESS", "LINK", "STATE", ">STEP", ">LOSS", ">HEARD", ">LINKS",
                   ">SENT", ">REPORTED"});
  for (const json::value& member : network.at("members").get_array()) {
    const json::value& report = member.at("report");
    // Without an exchange in this epoch, as after the end of the run, no neighbours were expected.
    const bool expected = report.is_object() && report.at("expected").to_number<int>() > 0;
    const std::string heard =
        expected ? fmt::format("{}/{}", cell(report, "neighbours"), cell(report, "expected")) : "-";
    table.add({cell(member, "name"), cell(member, "address"), cell(member, "connected"),
               cell(report, "state"), cell(report, "step"), cell(report, "loss", 4), heard,
               cell(report, "links"), bytes_cell(report, "bytes_sent"),
               recent_time_cell(report, "time", context.clock.wall_now())});
  }
  text += table.text(context.terminal.line_max);
  for (const json::value& member : network.at("members").get_array()) {
    const std::string problem = cell(member.at("report"), "problem");
    if (problem != "-") text += fmt::format("{}: {}\n", cell(member, "name"), problem);
  }
  const std::string state = cell(network, "state");
  if (state == "finished" || state == "stopped") {
    text += "each member keeps its model in gossip/model.safetensors of its state directory\n";
  }
  return text;
}

// The argument that names the file.
CLI::Option* add_net_flags(CLI::App& command, NetFlags& flags, const std::string& lifetime) {
  CLI::Option* const file =
      command.add_option("net", flags.file, "the network, as 'starling-gossip simulate' reads it")
          ->type_name("NET.toml");
  command.add_option("--run", flags.run, "its name (default: that of the file, or gossip)")
      ->type_name("NAME");
  command.add_option("--expires", flags.expires, "life of the roster (default: " + lifetime + ")")
      ->type_name("DURATION");
  add_operator_flags(command, flags.common);
  return file;
}

// After all other flags, so that none is taken for a key.
void add_keys(CLI::App& command, NetFlags& flags) {
  flags.options.bind(flags.binder);
  flags.binder.add_flags(command, gossip::kNetShortNames);
}

int start(NetFlags& flags, CommandContext& context) {
  const auto text = flags.read();
  if (!text) return config::report(text.error(), context.err);
  note_what_is_simulated(flags, context);
  return with_service(flags.common, context, [&](OperatorClient& client) -> Result<int> {
    Settings arguments = {{"run", flags.run_name()}};
    if (!flags.expires.empty()) arguments.emplace_back("expires", flags.expires);
    STARLING_ASSIGN(const json::value network, client.ask("gossip-start", arguments, *text));
    const json::value* const replaced = network.as_object().if_contains("replaced");
    if (replaced != nullptr && replaced->is_object()) {
      context.err << fmt::format(
          "note: takes the place of run {} (epoch {}), which was running: every device begins from "
          "the initial model\n",
          cell(*replaced, "run"), cell(*replaced, "epoch"));
    }
    if (flags.common.format == config::OutputFormat::kJson) {
      context.out << json::serialize(network) << '\n';
      return 0;
    }
    if (const auto* warnings = network.as_object().if_contains("warnings")) {
      for (const json::value& warning : warnings->as_array()) {
        context.err << "warning: " << escape_controls(warning.as_string()) << '\n';
      }
    }
    context.out << describe(network, context);
    return 0;
  });
}

// --- offline ------------------------------------------------------------------------------------

// Signing takes the authority's key: it certifies a key that is made for this one signature and
// then discarded. An operator's key alone cannot sign rosters.
Result<identity::CertificateAuthority> load_authority(const SignFlags& flags) {
  const StateDirectory state(flags.common.state);
  auto authority = identity::CertificateAuthority::load(state.authority());
  if (authority) return authority;
  return not_authorised(
      "no-authority",
      fmt::format("rosters are signed with the authority's key, which is in 'ca' of the "
                  "coordinator's state directory, and {} has none that can be read ({}); run this "
                  "where it is, or name the directory with --state",
                  fs::absolute(state.root()).string(), authority.error().message()));
}

Result<identity::Credentials> make_issuer(const identity::CertificateAuthority& authority,
                                          WallTime now) {
  return authority.issue_credentials({.role = identity::Role::kIssuer,
                                      .name = std::string(identity::kOwnerName),
                                      .lifetime = std::chrono::hours(1)},
                                     now);
}

// The roster that is at --to already; it is replaced only where it is of this federation.
Result<std::optional<identity::SignedRoster>> load_kept(
    const SignFlags& flags, const identity::CertificateAuthority& authority) {
  auto kept =
      identity::SignedRoster::load(flags.to, std::span(&authority.certificate(), 1),
                                   authority.federation(), identity::RosterOrigin::kOwnDisk);
  if (kept) return std::optional(*std::move(kept));
  if (kept.error().code() == "file-missing") return std::optional<identity::SignedRoster>();
  return kept.error().with_message(kept.error().message() +
                                   "; what is there is not replaced: put a copy of the "
                                   "roster there, or remove it and say --epoch");
}

// Later than that of the kept roster: a peer that holds an epoch refuses another roster of it.
Result<std::uint64_t> next_epoch(const SignFlags& flags, const identity::SignedRoster* kept) {
  const std::uint64_t least = kept != nullptr ? kept->roster().epoch + 1 : 1;
  if (flags.epoch == 0) return least;
  if (flags.epoch >= least) return flags.epoch;
  return rejected("roster-old", fmt::format("{} is of epoch {}, so --epoch must be at least {}",
                                            flags.to, kept->roster().epoch, least));
}

// A roster of the same name and seed as the one that is there continues its run, with other members
// or a longer life; any other begins one. Returns whether it continues.
bool name_run(identity::Roster& roster, const identity::SignedRoster* kept, WallTime now) {
  const auto value = [](const identity::Roster& of, std::string_view key) {
    const auto found = std::ranges::find(of.settings, key, &Settings::value_type::first);
    return found == of.settings.end() ? std::string() : found->second;
  };
  const bool continues = kept != nullptr && kept->roster().run == roster.run &&
                         value(kept->roster(), kSeed) == value(roster, kSeed);
  if (!continues) {
    roster.begin_run(now);
    return false;
  }
  const std::string id = value(kept->roster(), identity::kRunIdKey);
  if (!id.empty()) roster.settings.emplace_back(identity::kRunIdKey, id);
  return true;
}

// All that the roster revokes whose place this one takes, and the list, but for what --restore
// names.
Result<std::vector<Sha256Digest>> revoked_keys(const SignFlags& flags,
                                               const identity::SignedRoster* kept) {
  const StateDirectory state(flags.common.state);
  STARLING_ASSIGN(const auto listed, load_revoked(state));
  auto keys = revoked_after(kept != nullptr ? &kept->roster() : nullptr, listed);
  for (const std::string& text : flags.restored) {
    const auto key = Sha256Digest::parse(text);
    if (!key) return config::usage_error("--restore is the SHA-256 of a public key");
    if (std::ranges::find(listed, *key) != listed.end()) {
      return config::usage_error(fmt::format("--restore: {} stands in {}; remove its line there",
                                             text, state.revoked().string()));
    }
    if (std::erase(keys, *key) == 0) {
      return config::usage_error(fmt::format("--restore: {} is not revoked", text));
    }
  }
  return keys;
}

struct Signed {
  identity::SignedRoster roster;
  std::string of_run;  // what becomes of the run of the roster that it replaces; empty: of none
};

Result<Signed> sign(SignFlags& flags, const Clock& clock) {
  STARLING_ASSIGN(const std::string text, flags.read());
  STARLING_ASSIGN(const GossipRun run, parse_gossip_run(flags.run_name(), text, flags.file));
  const auto list = read_text_file(flags.members, kMembersBytesMax);
  if (!list) return list.error().as(ErrorCategory::kUsage);
  STARLING_ASSIGN(auto members, parse_members(*list, flags.members));
  STARLING_TRY(check_network(run.settings, members.size()));
  STARLING_ASSIGN(const Duration lifetime,
                  parse_duration(flags.expires.empty() ? "30d" : flags.expires));
  if (lifetime <= Duration::zero() || lifetime > identity::kRosterLifetimeMax) {
    return config::usage_error("--expires is out of range; a roster holds for 365 days at most");
  }
  STARLING_ASSIGN(const auto authority, load_authority(flags));
  STARLING_ASSIGN(const auto kept, load_kept(flags, authority));
  const identity::SignedRoster* replaced = kept ? &*kept : nullptr;
  STARLING_ASSIGN(const std::uint64_t epoch, next_epoch(flags, replaced));
  const WallTime now = clock.wall_now();
  STARLING_ASSIGN(const auto issuer, make_issuer(authority, now));
  STARLING_ASSIGN(auto revoked, revoked_keys(flags, replaced));
  auto settings = settings_for(run.settings, members.size());
  identity::Roster roster{
      .federation = authority.federation(),
      .run = run.name,
      .epoch = epoch,
      .issued = now,
      .expires = now + std::chrono::duration_cast<std::chrono::milliseconds>(lifetime),
      .settings = std::move(settings),
      .members = std::move(members),
      .revoked = std::move(revoked)};
  const bool continues = name_run(roster, replaced, now);
  STARLING_ASSIGN(auto made, identity::SignedRoster::sign(roster, issuer));
  std::string of_run;
  if (continues) {
    of_run = fmt::format("the run of epoch {} goes on", replaced->roster().epoch);
  } else if (replaced != nullptr) {
    of_run = fmt::format(
        "the run starts again, as its name or seed is not that of epoch {}: every device begins "
        "from the initial model",
        replaced->roster().epoch);
  }
  return Signed{std::move(made), std::move(of_run)};
}

Result<void> sign_and_save(SignFlags& flags, CommandContext& context) {
  STARLING_ASSIGN(const Signed made, sign(flags, context.clock));
  note_what_is_simulated(flags, context);
  STARLING_TRY(made.roster.save(flags.to));
  const identity::Roster& roster = made.roster.roster();
  for (const std::string& sentence : network_warnings(roster.settings, roster.members.size())) {
    context.err << "warning: " << sentence << '\n';
  }
  if (!made.of_run.empty()) context.err << "note: " << made.of_run << '\n';
  if (flags.common.format == config::OutputFormat::kJson) {
    context.out << json::serialize(json::object{{"run", roster.run},
                                                {"epoch", roster.epoch},
                                                {"members", roster.members.size()},
                                                {"expires", format_rfc3339(roster.expires)}})
                << '\n';
  } else {
    context.out << fmt::format("{}: epoch {} of {} with {}, valid until {}\n", flags.to,
                               roster.epoch, roster.run, counted(roster.members.size(), "member"),
                               format_rfc3339(roster.expires));
  }
  return {};
}

// ------------------------------------------------------------------------------------------------

void add_start(CLI::App& group, CommandContext& context) {
  CLI::App* command =
      group.add_subcommand("start", "let all who have joined train as a gossip network");
  const auto flags = std::make_shared<NetFlags>();
  add_net_flags(*command, *flags, "10m");
  add_keys(*command, *flags);
  command->callback(
      [flags, &context] { context.run = [flags, &context] { return start(*flags, context); }; });
}

void add_plain(CLI::App& group, CommandContext& context, const std::string& word,
               const std::string& help) {
  CLI::App* command = group.add_subcommand(word, help);
  const auto flags = std::make_shared<OperatorFlags>();
  add_operator_flags(*command, *flags);
  command->callback([flags, &context, word] {
    context.run = [flags, &context, word] {
      return ask_and_print(*flags, context, "gossip-" + word, {},
                           [&](const json::value& network) { return describe(network, context); });
    };
  });
}

void add_sign(CLI::App& group, CommandContext& context) {
  CLI::App* command =
      group.add_subcommand("sign", "sign a roster with the authority's key, without any service");
  const auto flags = std::make_shared<SignFlags>();
  // Else another run would begin where it was forgotten.
  add_net_flags(*command, *flags, "30d")->required();
  command->add_option("--members", flags->members, "lines of NAME KEY [HOST:PORT]")
      ->required()
      ->type_name("FILE");
  command->add_option("--to", flags->to, "the roster; one that is there gives the next epoch")
      ->required()
      ->type_name("FILE");
  command->add_option("--epoch", flags->epoch, "another epoch, later than the one that is there")
      ->check(CLI::Range(std::int64_t{1}, static_cast<std::int64_t>(identity::kRosterEpochMax)))
      ->type_name("N");
  command->add_option("--restore", flags->restored, "a key that is revoked, and counts again")
      ->type_name("KEY");
  add_keys(*command, *flags);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return config::report(sign_and_save(*flags, context), context.err);
    };
  });
}

}  // namespace

void add_gossip_commands(CLI::App& app, CommandContext& context) {
  CLI::App* group = app.add_subcommand("gossip", "networks of peers that train without rounds");
  group->require_subcommand(1);
  add_start(*group, context);
  add_plain(*group, context, "show", "the network, its members and what they reported last");
  add_plain(*group, context, "stop", "tell the members to end");
  add_sign(*group, context);
}

}  // namespace starling::coordinator
