// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/catalogue.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/base/nearest_name.h"
#include "core/base/settings.h"
#include "core/strategy/diloco.h"
#include "core/strategy/fedavg.h"
#include "core/strategy/fedavgm.h"
#include "core/strategy/feddyn.h"
#include "core/strategy/fednova.h"
#include "core/strategy/fedopt.h"
#include "core/strategy/fedprox.h"
#include "core/strategy/qfedavg.h"
#include "core/strategy/scaffold.h"

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

// Halves that are made of the options they know.
template <class Client>
Catalogue::MakeClient client() {
  return [](const StrategyOptions& options,
            const train::TrainOptions& training) -> std::unique_ptr<ClientStrategy<float>> {
    if constexpr (std::is_constructible_v<Client, StrategyOptions, train::TrainOptions>) {
      return std::make_unique<Client>(options, training);
    } else if constexpr (std::is_constructible_v<Client, StrategyOptions>) {
      return std::make_unique<Client>(options);
    } else {
      return std::make_unique<Client>();
    }
  };
}

template <class Server>
Catalogue::MakeServer server() {
  return [](const StrategyOptions& options,
            const ServerOptions& server) -> std::unique_ptr<ServerStrategy<float>> {
    if constexpr (std::is_constructible_v<Server, StrategyOptions, ServerOptions>) {
      return std::make_unique<Server>(options, server);
    } else {
      return std::make_unique<Server>(server);
    }
  };
}

Catalogue::MakeServer fedopt(FedOptKind kind) {
  return [kind](const StrategyOptions&, const ServerOptions& server) {
    return std::make_unique<FedOptServer<float>>(kind, server);
  };
}

std::vector<std::string> plain_sgd(const StrategyOptions&) { return {"sgd"}; }

std::vector<std::string> fednova_optimizers(const StrategyOptions& options) {
  if (options.mu.value_or(0) > 0) return {"sgd"};
  return {"sgd", "momentum"};
}

// Of strategies that divide by it. It is lowest in the first round or the last.
Result<void> check_positive_rate(const StrategyOptions& options,
                                 const train::TrainOptions& training, Round rounds) {
  for (const Round round : {Round{1}, rounds}) {
    if (train::learning_rate_at(training, round, rounds) > 0) continue;
    return wrong_setting("setting-invalid",
                         fmt::format("strategy.name = '{}' divides by the learning rate, which is "
                                     "0 in round {} of {}: raise train.learning-rate{}",
                                     options.name, round, rounds,
                                     training.schedule == "step" ? " or train.gamma" : ""));
  }
  return {};
}

Result<void> check_scaffold_rate(const StrategyOptions& options,
                                 const train::TrainOptions& training, Round rounds) {
  if (options.option == "I") return {};
  return check_positive_rate(options, training, rounds);
}

// It is highest right after the warm-up.
Result<void> check_fednova_rate(const StrategyOptions& options, const train::TrainOptions& training,
                                Round rounds) {
  const Round highest = std::min(rounds, static_cast<Round>(training.warmup_rounds) + 1);
  const double rate = train::learning_rate_at(training, highest, rounds);
  const double mu = options.mu.value_or(0);
  if (mu * rate <= 1) return {};
  return wrong_setting("setting-invalid",
                       fmt::format("strategy.name = 'fednova' needs strategy.mu x learning rate "
                                   "of at most 1; they are {} and {} in round {}",
                                   mu, rate, highest));
}

Catalogue make_builtin() {
  Catalogue all;
  all.add_client("fedavg", client<FedAvgClient<float>>());
  const std::string rate = "server-learning-rate", momentum = "server-momentum";
  all.add("fedavg", {.make = server<FedAvgServer<float>>(), .server_keys = {rate}});
  all.add("fedavgm", {.make = server<FedAvgMServer<float>>(), .server_keys = {rate, momentum}});
  all.add("fedadagrad", {.make = fedopt(FedOptKind::kAdagrad), .server_keys = {rate, "tau"}});
  const std::vector<std::string> of_adam = {rate, "beta1", "beta2", "tau"};
  all.add("fedadam", {.make = fedopt(FedOptKind::kAdam), .server_keys = of_adam});
  all.add("fedyogi", {.make = fedopt(FedOptKind::kYogi), .server_keys = of_adam});

  all.add_client("fedprox", client<FedProxClient<float>>());
  all.add("fedprox", {.make = server<FedAvgServer<float>>(),
                      .client_half = "fedprox",
                      .client_keys = {"mu"},
                      .server_keys = {rate}});
  all.add_client("fednova", client<FedNovaClient<float>>());
  all.add("fednova", {.make = server<FedNovaServer<float>>(),
                      .client_half = "fednova",
                      .client_keys = {"mu"},
                      .server_keys = {rate},
                      .optimizers = fednova_optimizers,
                      .check_rates = check_fednova_rate});
  all.add_client("scaffold", client<ScaffoldClient<float>>());
  all.add("scaffold", {.make = server<ScaffoldServer<float>>(),
                       .client_half = "scaffold",
                       .client_keys = {"option"},
                       .server_keys = {rate},
                       .optimizers = plain_sgd,
                       .check_rates = check_scaffold_rate});
  all.add_client("qfedavg", client<QFedAvgClient<float>>());
  all.add("qfedavg", {.make = server<QFedAvgServer<float>>(),
                      .client_half = "qfedavg",
                      .client_keys = {"q"},
                      .server_keys = {rate},
                      .optimizers = plain_sgd,
                      .check_rates = check_positive_rate});
  all.add_client("feddyn", client<FedDynClient<float>>());
  all.add("feddyn", {.make = server<FedDynServer<float>>(),
                     .client_half = "feddyn",
                     .client_keys = {"alpha"},
                     .server_keys = {rate}});
  all.add_client("diloco", client<DiLoCoClient<float>>());
  all.add("diloco", {.make = server<DiLoCoServer<float>>(),
                     .client_half = "diloco",
                     .server_keys = {rate, momentum}});
  return all;
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
    const StrategyOptions& options, const train::TrainOptions& training) const {
  const auto found = clients_.find(options.name);
  if (found == clients_.end()) return unknown_strategy(options.name, names_of(clients_));
  return found->second(options, training);
}

Result<std::unique_ptr<ServerStrategy<float>>> Catalogue::make_server(
    const StrategyOptions& options, const ServerOptions& server) const {
  STARLING_ASSIGN(const Server* entry, find(options.name));
  return entry->make(options, server);
}

Result<void> Catalogue::check(const StrategyOptions& options, const train::TrainOptions& training,
                              Round rounds) const {
  STARLING_ASSIGN(const Server* entry, find(options.name));
  if (entry->check_rates) STARLING_TRY(entry->check_rates(options, training, rounds));
  if (!entry->optimizers) return {};
  const std::vector<std::string> optimizers = entry->optimizers(options);
  if (std::ranges::count(optimizers, training.optimizer) > 0) return {};
  const std::vector<std::string_view> views(optimizers.begin(), optimizers.end());
  return wrong_setting(
      "setting-invalid",
      fmt::format("strategy.name = '{}' with these settings needs train.optimizer = {}: its "
                  "equations do not hold for {}",
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

std::vector<std::string> Catalogue::unused_settings(const StrategyOptions& options,
                                                    const ServerOptions& server) const {
  const auto reads = [](const Server& entry, const std::string& key) {
    return key == "name" || std::ranges::count(entry.client_keys, key) > 0 ||
           std::ranges::count(entry.server_keys, key) > 0;
  };
  Settings changed = changed_settings("", options);
  std::ranges::copy(changed_settings("", server), std::back_inserter(changed));
  std::vector<std::string> sentences;
  for (const auto& [key, value] : changed) {
    if (reads(servers_.at(options.name), key)) continue;
    std::vector<std::string_view> users;
    for (const auto& [name, entry] : servers_) {
      if (reads(entry, key)) users.push_back(name);
    }
    sentences.push_back(
        fmt::format("strategy.{} is used by {} only; strategy.name is {}: it has no effect", key,
                    join_names(users, "and"), options.name));
  }
  return sentences;
}

std::vector<std::string> Catalogue::client_names() const { return names_of(clients_); }

std::vector<std::string> Catalogue::names_for_plain_clients() const {
  std::vector<std::string> names;
  for (const auto& [name, server] : servers_) {
    if (server.client_half == Server().client_half) names.push_back(name);
  }
  return names;
}

const Catalogue& builtin_strategies() {
  static const Catalogue kBuiltin = make_builtin();
  return kBuiltin;
}

}  // namespace starling::strategy
