// SPDX-License-Identifier: Apache-2.0
// gossip start, show, stop: the network of which this coordinator issues the roster.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "coordinator/service/operator_desk.h"
#include "core/base/nearest_name.h"
#include "core/config/settings_json.h"
#include "gossip/fallback/fallback_terms.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

json::object to_json(const GossipIssuer::Report& reported) {
  const protocol::PeerReport& report = reported.report;
  return {{"time", format_rfc3339(reported.at)},
          {"epoch", report.epoch},
          {"state", report.state},
          {"step", report.step},
          {"exchange", report.exchange},
          {"loss", report.loss_steps > 0 ? json::value(report.loss) : json::value(nullptr)},
          {"neighbours", report.neighbours},
          {"expected", report.expected},
          {"links", report.linked > 0 ? json::value(report.linked - 1) : json::value(nullptr)},
          {"reachable", report.reachable},
          {"bytes_sent", report.bytes_sent},
          {"bytes_received", report.bytes_received},
          {"messages", report.messages},
          {"problem", report.problem}};
}

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

template <class Is>
bool all_reported(const GossipIssuer& issuer, Is is) {
  return std::ranges::all_of(issuer.roster()->members,
                             [&issuer, is](const identity::RosterMember& member) {
                               const auto found = issuer.reports().find(member.name);
                               return found != issuer.reports().end() && is(found->second.report);
                             });
}

// A refusal counts in its own epoch only, since another roster may suit that member. A finished
// member stays finished.
std::string_view state_of(const GossipIssuer& issuer) {
  const identity::Roster& roster = *issuer.roster();
  if (roster.stopped()) return "stopped";
  if (all_reported(issuer, [](const auto& report) { return report.state == "finished"; })) {
    return "finished";
  }
  const bool all_refuse = all_reported(issuer, [&roster](const auto& report) {
    return report.state == "refused" && report.epoch == roster.epoch;
  });
  return issuer.cannot_go_on() || all_refuse ? "refused" : "running";
}

json::object to_json(GossipIssuer& issuer) {
  const identity::Roster& roster = *issuer.roster();
  json::array members;
  for (const identity::RosterMember& member : roster.members) {
    const auto report = issuer.reports().find(member.name);
    const bool reported = report != issuer.reports().end();
    members.push_back(
        json::object{{"name", member.name},
                     {"key", member.key.hex()},
                     {"address", text_or_null(member.address)},
                     {"connected", issuer.desk().is_connected(member.name)},
                     {"report", reported ? json::value(to_json(report->second)) : nullptr}});
  }
  return {{"run", roster.run},
          {"state", state_of(issuer)},
          {"epoch", roster.epoch},
          {"issued", format_rfc3339(roster.issued)},
          {"expires", format_rfc3339(roster.expires)},
          {"problem", text_or_null(issuer.problem())},
          {"settings", config::to_json(roster.settings)},
          {"members", std::move(members)}};
}

Result<Duration> parse_expires(const OperatorCall& call) {
  const auto text = call.find("expires");
  if (!text) return GossipIssuer::kLifetimeDefault;
  STARLING_ASSIGN(const Duration lifetime, parse_duration(*text));
  if (lifetime >= GossipIssuer::kLifetimeMin && lifetime <= GossipIssuer::kLifetimeMax) {
    return lifetime;
  }
  return wrong_setting("setting-invalid",
                       fmt::format("--expires {} is out of range; it must be {} to {}",
                                   printable(*text), format_duration(GossipIssuer::kLifetimeMin),
                                   format_duration(GossipIssuer::kLifetimeMax)));
}

}  // namespace

Answer OperatorDesk::gossip_start(const OperatorCall& call) {
  STARLING_ASSIGN(const std::string name, call.get("run"));
  STARLING_ASSIGN(const Duration lifetime, parse_expires(call));
  STARLING_ASSIGN(const GossipRun run, parse_gossip_run(name, call.payload, "NET.toml"));
  STARLING_TRY(parts_.gossip.check_addresses());
  const std::string_view former_state =
      parts_.gossip.roster() ? state_of(parts_.gossip) : std::string_view();
  const bool replaces = former_state == "running" || former_state == "refused";
  json::value replaced;
  if (replaces) {
    const identity::Roster& former = *parts_.gossip.roster();
    replaced = json::object{{"run", former.run}, {"epoch", former.epoch}};
  }
  STARLING_TRY(parts_.gossip.start(run, lifetime));
  parts_.log.info("{} started the gossip network {}", call.caller, name);
  const identity::Roster& roster = *parts_.gossip.roster();
  json::object started = to_json(parts_.gossip);
  started["replaced"] = std::move(replaced);
  const auto warnings = network_warnings(run.settings, roster.members.size());
  if (!warnings.empty()) started["warnings"] = json::value_from(warnings);
  return answer_json(started);
}

Answer OperatorDesk::gossip_show(const OperatorCall&) {
  if (parts_.gossip.roster()) return answer_json(to_json(parts_.gossip));
  return rejected("not-running",
                  "no gossip network was started; 'gossip start NET.toml' starts one");
}

Answer OperatorDesk::gossip_stop(const OperatorCall& call) {
  if (const identity::Roster* roster = parts_.gossip.roster()) {
    STARLING_ASSIGN(const auto fallback, gossip::read_fallback(roster->settings));
    if (fallback) {
      return rejected("fallback-network",
                      fmt::format("{} is the fallback of run {}; 'run stop {}' ends both",
                                  roster->run, fallback->run, fallback->run));
    }
  }
  STARLING_TRY(parts_.gossip.stop());
  parts_.log.info("{} stopped the gossip network {}", call.caller, parts_.gossip.roster()->run);
  Answer stopped = answer_json(to_json(parts_.gossip));
  handlers_.on_gossip_stopped();  // it may publish another
  return stopped;
}

}  // namespace starling::coordinator
