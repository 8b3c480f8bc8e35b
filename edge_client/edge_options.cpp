// SPDX-License-Identifier: Apache-2.0
#include "edge_client/edge_options.h"

#include <algorithm>

#include "core/config/binder.h"
#include "core/identity/host_port.h"

namespace starling::edge_client {
namespace {

std::string_view section_of(std::string_view key) { return key.substr(0, key.find('.')); }

// A dataset has no default; what stands there shows how one is named.
std::string_view example(std::string_view key, std::string_view default_value) {
  if (key == "data.dataset") return "\"csv:/path/to/rows.csv\"";
  if (key == "trainer.command") return "[\"python3\", \"train.py\"]";
  if (key == "data.partition") return "\"dirichlet:alpha=0.5,index=3,of=10\"";
  return default_value;
}

}  // namespace

LogLevel LogOptions::threshold() const {
  const auto found = std::ranges::find(kLogLevels, level);
  return static_cast<LogLevel>(found - kLogLevels.begin());
}

void bind(config::Binder& binder, EdgeOptions& options) {
  binder.bind("data", options.data);
  binder.bind("trainer", options.trainer);
  binder.bind("limits", options.limits);
  binder.bind("connection", options.connection);
  binder.bind("gossip", options.gossip);
  binder.bind("log", options.log);
}

Result<void> validate(const EdgeOptions& options) {
  const LinkOptions& link = options.connection;
  if (link.backoff_min > link.backoff_max) {
    return wrong_setting(
        "setting-invalid",
        "connection.backoff-min = " + format_duration(link.backoff_min) +
            " is longer than connection.backoff-max = " + format_duration(link.backoff_max));
  }
  if (!options.trainer.command.empty() && !options.data.dataset.empty()) {
    return wrong_setting(
        "setting-invalid",
        "trainer.command and data.dataset are both set: the trainer holds its data "
        "itself; remove the one that this device does not use");
  }
  const GossipOptions& gossip = options.gossip;
  if (!gossip.listen.empty()) {
    const auto where = identity::parse_host_port(gossip.listen);
    if (!where) return where.error().within("gossip.listen");
    if (!identity::is_numeric_address(where->host)) {
      return wrong_setting("setting-invalid", "gossip.listen = \"" + gossip.listen +
                                                  "\" names no address of this device; write "
                                                  "0.0.0.0:PORT or [::]:PORT for all of them");
    }
  }
  if (!gossip.bind.empty() && !identity::is_numeric_address(gossip.bind)) {
    return wrong_setting("setting-invalid",
                         "gossip.bind = \"" + gossip.bind + "\" is no numeric address");
  }
  return {};
}

std::string edge_toml_template() {
  EdgeOptions defaults;
  config::Binder binder;
  bind(binder, defaults);
  std::string text =
      "# Settings of this device. Every key is also a flag of `starling-edge start`.\n";
  std::string_view section;
  for (const config::KeyDocument& key : binder.documents()) {
    if (section_of(key.key) != section) {
      section = section_of(key.key);
      text += "\n# [" + std::string(section) + "]\n";
    }
    text += "# " + key.key.substr(section.size() + 1) + " = " +
            std::string(example(key.key, key.default_value)) + "  # " + key.help;
    text += (key.unit.empty() ? "" : " (" + key.unit + ")") + "\n";
  }
  return text;
}

}  // namespace starling::edge_client
