// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/strategy.h"

#include <array>

#include "core/strategy/fedavg.h"

namespace starling::strategy {
namespace {

constexpr std::array<std::string_view, 1> kNames = {"fedavg"};

Error unknown_strategy(const std::string& name) {
  return unsupported("unknown-strategy",
                     "this version has no strategy '" + name + "'; it has: fedavg")
      .as(ErrorCategory::kUsage);
}

}  // namespace

std::span<const std::string_view> strategy_names() { return kNames; }

Result<std::unique_ptr<ClientStrategy>> make_client_strategy(const StrategyOptions& options) {
  if (options.name != "fedavg") return unknown_strategy(options.name);
  return std::unique_ptr<ClientStrategy>(std::make_unique<FedAvgClient>());
}

Result<std::unique_ptr<ServerStrategy>> make_server_strategy(const StrategyOptions& options) {
  if (options.name != "fedavg") return unknown_strategy(options.name);
  return std::unique_ptr<ServerStrategy>(std::make_unique<FedAvgServer>());
}

}  // namespace starling::strategy
