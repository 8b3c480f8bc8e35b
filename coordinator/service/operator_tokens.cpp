// SPDX-License-Identifier: Apache-2.0
// token new, list, revoke: who may join.
#include <boost/json.hpp>

#include "coordinator/service/operator_desk.h"
#include "core/base/nearest_name.h"
#include "core/identity/host_port.h"
#include "core/identity/join_token.h"
#include "core/identity/wipe.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

constexpr Duration kValidMin = std::chrono::seconds(1);
constexpr Duration kValidMax = std::chrono::hours(24 * 30);

Result<Duration> parse_valid(const OperatorCall& call, Duration standard) {
  const auto text = call.find("valid");
  if (!text) return standard;
  STARLING_ASSIGN(const Duration valid, parse_duration(*text));
  if (valid < kValidMin || valid > kValidMax) {
    return wrong_setting("setting-invalid", "--valid " + printable(*text) +
                                                " is out of range; it must "
                                                "be 1s to 30d");
  }
  return valid;
}

// Where a peer may be reached, if anywhere.
Result<std::vector<std::string>> parse_addresses(const OperatorCall& call, store::Role role) {
  const auto text = call.find("address");
  if (!text) return std::vector<std::string>();
  if (role != store::Role::kPeer) {
    return wrong_setting("setting-invalid",
                         "--address is for peers, which others dial; add --role peer");
  }
  STARLING_ASSIGN(const identity::HostPort address, identity::parse_dialled_address(*text));
  return std::vector<std::string>{address.text()};
}

json::object to_json(const store::Token& token) {
  return {{"id", token.id},
          {"client", token.client},
          {"role", store::to_string(token.role)},
          {"state", store::to_string(token.state)},
          {"created", format_rfc3339(token.created)},
          {"expires", format_rfc3339(token.expires)}};
}

// With a directory of its own: where STARLING_HOME is a coordinator's, join would refuse that.
std::string join_command(store::Role role, const std::string& client, const std::string& token) {
  if (role == store::Role::kOperator) return "starling-coordinator join " + token;
  return "starling-edge join " + token + " --state " + client;
}

}  // namespace

Answer OperatorDesk::token_new(const OperatorCall& call) {
  STARLING_ASSIGN(const std::string client, call.get("client"));
  STARLING_TRY(identity::check_name(client, "the client"));
  STARLING_ASSIGN(const store::Role role, store::parse_role(call.find("role").value_or("device")));
  STARLING_ASSIGN(const Duration valid, parse_valid(call, parts_.settings.enrol.token_valid));
  STARLING_ASSIGN(const auto addresses, parse_addresses(call, role));
  for (const std::string& address : addresses) {
    STARLING_TRY(parts_.gossip.check_address(client, address));
  }
  const auto names = parts_.settings.names();
  if (names.empty()) {
    return wrong_setting(
        "setting-invalid",
        "service.names in coordinator.toml is empty: devices would not know what to "
        "dial");
  }
  const auto token = identity::JoinToken::make(authority_, names.front(), port_);
  const WallTime now = parts_.clock.wall_now();
  const WallTime expires = now + std::chrono::duration_cast<std::chrono::milliseconds>(valid);
  store::Token record{.id = to_string(token.id),
                      .client = client,
                      .role = role,
                      .addresses = addresses,
                      .mac_key = to_bytes(token.key().bytes()),
                      .created = now,
                      .expires = expires};
  const identity::WipeAtEnd wiped(record.mac_key);
  STARLING_TRY(parts_.store.create_token(record));
  parts_.log.info("{} made a token for {}", call.caller, client);
  const std::string text = token.text();
  return answer_json(json::object{{"id", to_string(token.id)},
                                  {"client", client},
                                  {"token", text},
                                  {"command", join_command(role, client, text)},
                                  {"expires", format_rfc3339(expires)}});
}

Answer OperatorDesk::token_list(const OperatorCall&) {
  STARLING_ASSIGN(auto tokens, parts_.store.tokens(parts_.clock.wall_now()));
  json::array list;
  for (store::Token& token : tokens) {
    const identity::WipeAtEnd wiped(token.mac_key);
    list.push_back(to_json(token));
  }
  return answer_json(list);
}

Answer OperatorDesk::token_revoke(const OperatorCall& call) {
  STARLING_ASSIGN(const std::string text, call.get("id"));
  STARLING_ASSIGN(const identity::TokenId id, identity::parse_token_id(text));
  STARLING_TRY(parts_.store.revoke_token(to_string(id), parts_.clock.wall_now()));
  parts_.log.info("{} revoked the token {}", call.caller, to_string(id));
  return answer_json(json::object{{"id", to_string(id)}, {"state", "revoked"}});
}

}  // namespace starling::coordinator
