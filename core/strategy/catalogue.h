// SPDX-License-Identifier: Apache-2.0
// The strategies that a program knows, by name. A program of one's own adds its strategies to the
// built-in ones and hands the catalogue to whatever runs a job.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/strategy/strategy.h"
#include "core/train/train_options.h"

namespace starling::strategy {

class Catalogue {
 public:
  using MakeClient = std::function<std::unique_ptr<ClientStrategy<float>>(
      const StrategyOptions& options, const train::TrainOptions& training)>;
  using MakeServer = std::function<std::unique_ptr<ServerStrategy<float>>(
      const StrategyOptions& options, const ServerOptions& server)>;
  struct Server {
    MakeServer make;
    std::string client_half = "fedavg";
    // Of StrategyOptions, what the client half reads: the rest does not travel.
    std::vector<std::string> client_keys = {};
    // Of ServerOptions, what the server half reads.
    std::vector<std::string> server_keys = {};
    // The local optimizers that its equations hold for; null: all.
    std::function<std::vector<std::string>(const StrategyOptions& options)> optimizers = nullptr;
    // Refuses learning rates that its equations do not hold for ("setting-invalid"); null: none.
    std::function<Result<void>(const StrategyOptions& options, const train::TrainOptions& training,
                               Round rounds)>
        check_rates = nullptr;
  };

  void add_client(std::string name, MakeClient make);
  void add(std::string name, Server server);

  // "unknown-strategy", with the names that there are. The client's is that of a client half.
  [[nodiscard]] Result<std::unique_ptr<ClientStrategy<float>>> make_client(
      const StrategyOptions& options, const train::TrainOptions& training) const;
  [[nodiscard]] Result<std::unique_ptr<ServerStrategy<float>>> make_server(
      const StrategyOptions& options, const ServerOptions& server) const;
  // "unknown-strategy", or "setting-invalid" where the strategy is not defined for the optimizer or
  // for a learning rate of the rounds.
  [[nodiscard]] Result<void> check(const StrategyOptions& options,
                                   const train::TrainOptions& training, Round rounds) const;
  // What clients are told of it: their half's name, and what that half reads. Requires: check().
  StrategyOptions for_clients(const StrategyOptions& options) const;

  // Of the keys that are not at their defaults, those that the strategy does not read: whole
  // sentences. Requires: check().
  std::vector<std::string> unused_settings(const StrategyOptions& options,
                                           const ServerOptions& server) const;

  std::vector<std::string> client_names() const;
  // Of the strategies whose clients only train, as fedavg's do.
  std::vector<std::string> names_for_plain_clients() const;

 private:
  Result<const Server*> find(const std::string& name) const;

  std::map<std::string, MakeClient> clients_;
  std::map<std::string, Server> servers_;
};

// Immutable.
const Catalogue& builtin_strategies();

}  // namespace starling::strategy
