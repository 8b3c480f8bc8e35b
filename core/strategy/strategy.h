// SPDX-License-Identifier: Apache-2.0
// A federated strategy has two halves: what a client makes of its trained model, and what the
// server makes of the aggregate. One file a strategy; both halves stand in it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/aggregate/aggregator.h"
#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/linalg/aligned.h"
#include "core/model/parameters.h"
#include "core/update/contribution.h"

namespace starling::strategy {

struct StrategyOptions {
  std::string name = "fedavg";
};

std::span<const std::string_view> strategy_names();

template <class Visitor>
void describe(Visitor& visit, StrategyOptions& options) {
  visit("name", options.name,
        FieldInfo{.help = "how updates become the next model", .choices = strategy_names()});
}

class ClientStrategy {
 public:
  virtual ~ClientStrategy() = default;
  // The payload of a contribution: the vectors of the schema, one after the other. `trained` is
  // consumed, so that the result can stand in its memory. Requires: equal sizes.
  virtual SharedBytes contribute(std::span<const float> base,
                                 linalg::AlignedVector<float> trained) const = 0;
};

class ServerStrategy {
 public:
  virtual ~ServerStrategy() = default;
  virtual update::Schema schema(const model::Layout& layout,
                                const update::Bounds& bounds) const = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<aggregate::Aggregator>> make_aggregator(
      const update::Schema& schema) const = 0;
  // The next global model. "diverged" if it would not be finite. May consume the means of `report`
  // (see aggregate::Means), so that they and the model are never whole in memory together.
  [[nodiscard]] virtual Result<model::Parameters> apply(const model::Parameters& base,
                                                        aggregate::Report&& report) = 0;
};

[[nodiscard]] Result<std::unique_ptr<ClientStrategy>> make_client_strategy(
    const StrategyOptions& options);
[[nodiscard]] Result<std::unique_ptr<ServerStrategy>> make_server_strategy(
    const StrategyOptions& options);

}  // namespace starling::strategy
