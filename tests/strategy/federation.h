// SPDX-License-Identifier: Apache-2.0
// Whole rounds of a strategy over quadratic clients: in float through contributions and the exact
// aggregation, as they run; in double with plain means.
#pragma once

#include <gtest/gtest.h>

#include "core/aggregate/weighted_mean.h"
#include "core/strategy/catalogue.h"
#include "core/strategy/diloco.h"
#include "core/strategy/fedavg.h"
#include "core/strategy/fedavgm.h"
#include "core/strategy/feddyn.h"
#include "core/strategy/fednova.h"
#include "core/strategy/fedopt.h"
#include "core/strategy/fedprox.h"
#include "core/strategy/qfedavg.h"
#include "core/strategy/scaffold.h"
#include "tests/strategy/quadratic.h"

namespace starling::strategy {

inline const std::vector<std::string> kStrategies = {"fedavg",  "fedprox", "fedavgm", "fedadagrad",
                                                     "fedadam", "fedyogi", "fednova", "scaffold",
                                                     "qfedavg", "feddyn",  "diloco"};

struct Setting {
  StrategyOptions options;
  ServerOptions server = {};
  LocalSgd sgd = {};

  train::TrainOptions training() const {
    return {.optimizer = sgd.momentum > 0 ? "momentum" : "sgd",
            .learning_rate = sgd.rate,
            .momentum = sgd.momentum};
  }
};

template <class T>
std::unique_ptr<ClientStrategy<T>> make_client(const Setting& setting) {
  const StrategyOptions& options = setting.options;
  if constexpr (std::is_same_v<T, float>) {
    const Catalogue& all = builtin_strategies();
    return all.make_client(all.for_clients(options), setting.training()).value();
  } else {
    if (options.name == "fedprox") return std::make_unique<FedProxClient<T>>(options);
    if (options.name == "fednova") {
      return std::make_unique<FedNovaClient<T>>(options, setting.training());
    }
    if (options.name == "scaffold") return std::make_unique<ScaffoldClient<T>>(options);
    if (options.name == "qfedavg") return std::make_unique<QFedAvgClient<T>>(options);
    if (options.name == "feddyn") return std::make_unique<FedDynClient<T>>(options);
    if (options.name == "diloco") {
      return std::make_unique<DiLoCoClient<T>>(options, setting.training());
    }
    return std::make_unique<FedAvgClient<T>>();
  }
}

template <class T>
std::unique_ptr<ServerStrategy<T>> make_server(const Setting& setting) {
  const std::string& name = setting.options.name;
  const ServerOptions& server = setting.server;
  if constexpr (std::is_same_v<T, float>) {
    return builtin_strategies().make_server(setting.options, server).value();
  } else {
    if (name == "fedavgm") return std::make_unique<FedAvgMServer<T>>(server);
    if (name == "fedadagrad") {
      return std::make_unique<FedOptServer<T>>(FedOptKind::kAdagrad, server);
    }
    if (name == "fedadam") return std::make_unique<FedOptServer<T>>(FedOptKind::kAdam, server);
    if (name == "fedyogi") return std::make_unique<FedOptServer<T>>(FedOptKind::kYogi, server);
    if (name == "fednova") return std::make_unique<FedNovaServer<T>>(server);
    if (name == "scaffold") return std::make_unique<ScaffoldServer<T>>(server);
    if (name == "qfedavg") return std::make_unique<QFedAvgServer<T>>(server);
    if (name == "feddyn") return std::make_unique<FedDynServer<T>>(setting.options, server);
    if (name == "diloco") return std::make_unique<DiLoCoServer<T>>(server);
    return std::make_unique<FedAvgServer<T>>(server);
  }
}

template <class T>
using Brought = std::vector<std::pair<double, ClientResult<T>>>;  // with their weights

inline aggregate::Report aggregated(const Brought<double>& brought,
                                    const std::vector<std::string>& vectors,
                                    const std::vector<std::string>& scalars,
                                    aggregate::ValueRange /*range*/) {
  aggregate::Report report{.contributions = static_cast<std::uint32_t>(brought.size())};
  for (const auto& [weight, result] : brought) report.weight += weight;
  const std::size_t elements = brought.front().second.payload.size() / vectors.size();
  for (std::size_t v = 0; v < vectors.size(); ++v) {
    std::vector<double> mean(elements);
    for (const auto& [weight, result] : brought) {
      for (std::size_t i = 0; i < elements; ++i) {
        mean[i] += weight / report.weight * result.payload[v * elements + i];
      }
    }
    report.vectors.push_back(aggregate::Means(std::span<const double>(mean)));
  }
  for (const std::string& name : scalars) {
    for (const auto& [weight, result] : brought) {
      report.scalars[name] += weight / report.weight * result.scalars.at(name);
    }
  }
  return report;
}

inline aggregate::Report aggregated(const Brought<float>& brought,
                                    const std::vector<std::string>& vectors,
                                    const std::vector<std::string>& scalars,
                                    aggregate::ValueRange range) {
  update::Schema schema{
      .bounds = {.contributions_max = static_cast<std::uint32_t>(brought.size())}};
  if (range == aggregate::ValueRange::kFloat32) schema.bounds.weight_max = 1;
  const std::size_t elements = brought.front().second.payload.size() / vectors.size();
  for (const std::string& name : vectors) {
    schema.vectors.push_back({.name = name, .elements = elements});
  }
  auto mean = aggregate::WeightedMean::create(schema, scalars, range).value();
  for (const auto& [weight, result] : brought) {
    auto owner = std::make_shared<const linalg::AlignedVector<float>>(result.payload);
    const SharedBytes payload(owner, std::as_bytes(std::span(*owner)));
    update::ContributionHead head{.task = TaskId(1),
                                  .weight = weight,
                                  .vectors = schema.vectors,
                                  .scalars = result.scalars,
                                  .payload_bytes = payload.size(),
                                  .payload_checksum = checksum(payload.view())};
    const auto contribution = update::validate(std::move(head), payload, schema);
    EXPECT_TRUE(contribution) << contribution.error().message();
    EXPECT_TRUE(mean.accumulate(*contribution));
  }
  return std::move(mean).report();
}

// In place of the model; the report stays as it is.
template <class T, class Model>
Result<void> apply(const ServerStrategy<T>& server, Model& model, State<T>& state,
                   aggregate::Report report, std::uint64_t population) {
  linalg::AlignedVector<T> next;
  STARLING_TRY(server.apply(model, next, state, {report, population}));
  EXPECT_EQ(next.size(), model.size());
  std::copy(next.begin(), next.end(), model.begin());
  return {};
}

template <class T>
struct Federation {
  explicit Federation(Setting of, std::vector<Quadratic> with = kTwoClients)
      : setting(std::move(of)),
        clients(std::move(with)),
        x(clients.front().a.size()),
        server_state(make_server<T>(setting)->initial_state(x.size())),
        client_states(clients.size()) {}

  // Strategies are made anew each time: nothing but the states may carry over.
  Result<void> round() {
    const auto server = make_server<T>(setting);
    std::map<std::string, std::span<const T>> inputs;
    for (const auto& name : server->sends()) inputs[name] = server_state.vectors.at(name);
    Brought<T> brought;
    for (std::size_t k = 0; k < clients.size(); ++k) {
      QuadraticTraining<T> training(clients[k], setting.sgd);
      const double weight = server->weighting() == Weighting::kRows ? clients[k].rows : 1;
      STARLING_ASSIGN(auto result,
                      make_client<T>(setting)->round(
                          {.model = x, .inputs = inputs, .state = client_states[k]}, training));
      EXPECT_EQ(result.payload.size(), server->receives().size() * x.size());
      brought.emplace_back(weight, std::move(result));
    }
    const auto report =
        aggregated(brought, server->receives(), server->scalars(), server->values());
    STARLING_TRY(apply(*server, x, server_state, report, clients.size()));
    for (std::size_t k = 0; k < clients.size(); ++k) {
      client_states[k] = std::move(brought[k].second.state);
    }
    return {};
  }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      const auto done = round();
      ASSERT_TRUE(done) << done.error().message();
    }
  }

  Setting setting;
  std::vector<Quadratic> clients;
  std::vector<T> x;
  State<T> server_state;
  std::vector<State<T>> client_states;
};

}  // namespace starling::strategy
