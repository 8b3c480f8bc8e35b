// SPDX-License-Identifier: Apache-2.0
// client list, show, revoke: who has joined.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "coordinator/service/operator_desk.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

// An active client's certificate may have ended: it is admitted, and cannot connect.
std::string_view state_of(const store::Client& client, WallTime now) {
  const bool expired =
      client.state == store::ClientState::kActive && now > client.certificate_expires;
  return expired ? "expired" : store::to_string(client.state);
}

// The store knows the time of the last greeting or goodbye, and to a minute when a connected client
// was heard; `heard_at`: of a client that is connected.
json::object to_json(const store::Client& client, std::optional<TimePoint> heard_at,
                     const Clock& clock) {
  std::optional<WallTime> seen = client.last_seen;
  if (heard_at) {
    seen = clock.wall_now() -
           std::chrono::duration_cast<std::chrono::milliseconds>(clock.now() - *heard_at);
  }
  json::value last_seen(nullptr);
  if (seen) last_seen = format_rfc3339(*seen);
  return {{"name", client.name},
          {"state", state_of(client, clock.wall_now())},
          {"connected", heard_at.has_value()},
          {"last_seen", std::move(last_seen)},
          {"certificate_expires", format_rfc3339(client.certificate_expires)}};
}

// What it said of itself when it last connected; null: not said.
void add_greeting(const store::Greeting& greeting, json::object& object) {
  object["rows"] = greeting.rows;
  object["held_out"] = greeting.held_out;
  object["input"] =
      greeting.input.empty() ? json::value(nullptr) : json::value_from(greeting.input);
  object["classes"] = greeting.classes == 0 ? json::value(nullptr) : json::value(greeting.classes);
  object["abilities"] = json::value_from(greeting.abilities);
}

Error client_unknown(const std::string& name) {
  return rejected("client-unknown",
                  "no client is named '" + name + "'; 'client list' shows those who have joined");
}

}  // namespace

Answer OperatorDesk::client_list(const OperatorCall& call) {
  const auto word = call.find("role");
  std::optional<store::Role> role;
  if (word) {
    STARLING_ASSIGN(role, store::parse_role(*word));
  }
  STARLING_ASSIGN(const auto clients, parts_.store.clients());
  json::array list;
  for (const store::Client& client : clients) {
    const bool listed = role ? client.role == *role : client.role != store::Role::kOperator;
    if (listed) list.push_back(to_json(client, handlers_.heard_at(client.name), parts_.clock));
  }
  return answer_json(list);
}

Answer OperatorDesk::client_show(const OperatorCall& call) {
  STARLING_ASSIGN(const std::string name, call.get("name"));
  STARLING_TRY(identity::check_name(name, "the client"));
  STARLING_ASSIGN(const auto client, parts_.store.find_client(name));
  if (!client) return client_unknown(name);
  json::object object = to_json(*client, handlers_.heard_at(name), parts_.clock);
  object["role"] = store::to_string(client->role);
  object["joined"] = format_rfc3339(client->joined);
  add_greeting(client->greeting, object);
  object["certificate_serial"] = client->certificate_serial;
  object["key"] = client->certificate_fingerprint.hex();
  return answer_json(object);
}

Answer OperatorDesk::client_revoke(const OperatorCall& call) {
  STARLING_ASSIGN(const std::string name, call.get("name"));
  STARLING_TRY(identity::check_name(name, "the client"));
  if (name == call.caller) {
    return rejected("own-identity", "an operator cannot revoke itself; another one must do it");
  }
  const auto revocations = parts_.store.revoke_client(name, parts_.clock.wall_now());
  if (!revocations) {
    return revocations.error().code() == "client-unknown" ? client_unknown(name)
                                                          : revocations.error();
  }
  const GossipIssuer& gossip = parts_.gossip;
  const bool was_member = gossip.roster() && gossip.roster()->find(name);
  parts_.registry.revoke(name, *revocations);
  parts_.log.info("{} revoked the client {}", call.caller, name);
  handlers_.on_revoked(name);
  json::object revoked{{"name", name}, {"state", "revoked"}};
  if (was_member && gossip.cannot_go_on()) {
    revoked["warning"] =
        fmt::format("the gossip network {}: {}", gossip.roster()->run, gossip.problem());
  }
  return answer_json(revoked);
}

}  // namespace starling::coordinator
