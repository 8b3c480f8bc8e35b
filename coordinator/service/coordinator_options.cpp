// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/coordinator_options.h"

#include <algorithm>

#include "core/base/nearest_name.h"
#include "core/base/trimmed.h"

namespace starling::coordinator {
namespace {

constexpr std::string_view kAnyPort = ":0";

}  // namespace

void CoordinatorSettings::bind(config::Binder& binder) {
  binder.bind("service", service);
  binder.bind("enrol", enrol);
  binder.bind("connection", connection);
  binder.bind("session", session);
  binder.bind("operator", operators);
  binder.bind("spool", spool);
  binder.bind("trainer", trainer);
}

Result<identity::HostPort> CoordinatorSettings::listen_address() const {
  std::string text = service.listen;
  const bool any_port = text.ends_with(kAnyPort);
  if (any_port) text.replace(text.size() - 1, 1, "1");
  auto address = identity::parse_host_port(text);
  if (!address || !identity::is_numeric_address(address->host)) {
    return wrong_setting(
        "setting-invalid",
        "service.listen = \"" + printable(service.listen) +
            "\": write ADDRESS:PORT with a numeric address of this machine, such as "
            "127.0.0.1:7443, or 0.0.0.0:7443 for all of them; names that devices dial "
            "stand in service.names");
  }
  if (any_port) address->port = 0;
  return address;
}

std::vector<std::string> CoordinatorSettings::names() const {
  std::vector<std::string> names;
  std::string_view rest = service.names;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    std::string name(trimmed(rest.substr(0, end)));
    if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

Result<void> CoordinatorSettings::validate() const {
  STARLING_TRY(listen_address());
  for (const std::string& name : names()) {
    if (identity::is_numeric_address(name) || identity::is_dns_name(name)) continue;
    return wrong_setting("setting-invalid",
                         "service.names: \"" + printable(name) +
                             "\" is neither a DNS name nor an address; write it "
                             "without a port, such as fl.example.org or 10.0.0.1");
  }
  if (session.heartbeat >= session.silence || session.silence >= connection.idle) {
    return wrong_setting("setting-invalid",
                         "session.heartbeat must be below session.silence, and that below "
                         "connection.idle: a client that beats in time must not be cut off");
  }
  if (session.window_bytes < session.chunk_bytes) {
    return wrong_setting("setting-invalid", "session.window-bytes must hold a session.chunk-bytes");
  }
  return {};
}

}  // namespace starling::coordinator
