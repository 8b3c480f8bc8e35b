// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/catalogue.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/base/nearest_name.h"
#include "core/base/settings.h"
#include "core/strategy/fedavg.h"

namespace starling::strategy {
namespace {

template <class Map>
std::vector<std::string> names_of(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

Error unknown_strategy(const std::string& name, const std::vector<std::string>& known) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  return unsupported("unknown-strategy",
                     fmt::format("this program has no strategy '{}'; it has {}{}", printable(name),
                                 join_names(views, "and"), suggestion(name, views)))
      .as(ErrorCategory::kUsage);
}

Catalogue make_builtin() {
  Catalogue catalogue;
  catalogue.add_client(
      "fedavg", [](const StrategyOptions&) { return std::make_unique<FedAvgClient<float>>(); });
  catalogue.add("fedavg", {.make = [](const StrategyOptions&, const ServerOptions& server) {
                  return std::make_unique<FedAvgServer<float>>(server);
                }});
  return catalogue;
}

}  // namespace

void Catalogue::add_client(std::string name, MakeClient make) {
  const bool is_new = clients_.emplace(std::move(name), std::move(make)).second;
  STARLING_CHECK(is_new);
}

void Catalogue::add(std::string name, Server server) {
  STARLING_CHECK(clients_.contains(server.client_half));
  const bool is_new = servers_.emplace(std::move(name), std::move(server)).second;
  STARLING_CHECK(is_new);
}

Result<const Catalogue::Server*> Catalogue::find(const std::string& name) const {
  const auto found = servers_.find(name);
  if (found == servers_.end()) return unknown_strategy(name, names_of(servers_));
  return &found->second;
}

Result<std::unique_ptr<ClientStrategy<float>>> Catalogue::make_client(
    const StrategyOptions& options) const {
  const auto found = clients_.find(options.name);
  if (found == clients_.end()) return unknown_strategy(options.name, names_of(clients_));
  return found->second(options);
}

Result<std::unique_ptr<ServerStrategy<float>>> Catalogue::make_server(
    const StrategyOptions& options, const ServerOptions& server) const {
  STARLING_ASSIGN(const Server* entry, find(options.name));
  return entry->make(options, server);
}

Result<void> Catalogue::check(const StrategyOptions& options,
                              const train::TrainOptions& training) const {
  STARLING_ASSIGN(const Server* entry, find(options.name));
  const std::vector<std::string>& optimizers = entry->optimizers;
  if (optimizers.empty() || std::ranges::count(optimizers, training.optimizer) > 0) return {};
  const std::vector<std::string_view> views(optimizers.begin(), optimizers.end());
  return wrong_setting(
      "setting-invalid",
      fmt::format("strategy.name = '{}' needs train.optimizer = {}: its equations do "
                  "not hold for {}",
                  options.name, join_names(views, "or"), training.optimizer));
}

StrategyOptions Catalogue::for_clients(const StrategyOptions& options) const {
  const Server& entry = servers_.at(options.name);
  StrategyOptions told;
  StrategyOptions all = options;
  Settings settings;
  for (const Field& field : fields_of("", all)) {
    if (std::ranges::count(entry.client_keys, field.key) == 0) continue;
    settings.emplace_back(field.key, field.text());
  }
  const auto set = set_fields(fields_of("", told), "", settings);
  STARLING_CHECK(set);
  told.name = entry.client_half;
  return told;
}

std::vector<std::string> Catalogue::client_names() const { return names_of(clients_); }

const Catalogue& builtin_strategies() {
  static const Catalogue kBuiltin = make_builtin();
  return kBuiltin;
}

}  // namespace starling::strategy
