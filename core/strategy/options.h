// SPDX-License-Identifier: Apache-2.0
// The `[strategy]` table of a job. Its keys are two structs: what clients need to know travels to
// them with each task, what the server alone needs does not.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/fields.h"

namespace starling::strategy {

inline constexpr std::array<std::string_view, 2> kScaffoldOptions = {"I", "II"};

// Travels. `name` is there the name of the client half, which several strategies share.
struct StrategyOptions {
  std::string name = "fedavg";
  std::optional<double> mu;   // fedprox, fednova
  double alpha = 0.1;         // feddyn
  double q = 1;               // qfedavg
  std::string option = "II";  // scaffold

  friend bool operator==(const StrategyOptions&, const StrategyOptions&) = default;
};

// Stays at the server. Values that are not set are those of the strategy's paper.
struct ServerOptions {
  std::optional<double> learning_rate;
  std::optional<double> momentum;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double tau = 1e-3;

  friend bool operator==(const ServerOptions&, const ServerOptions&) = default;
};

template <class V>
void describe(V& visit, StrategyOptions& o) {
  visit(
      "name", o.name,
      FieldInfo{.help = "how updates become the next model: fedavg, fedprox, fedavgm, fedadagrad, "
                        "fedadam, fedyogi, fednova, scaffold, qfedavg, feddyn or diloco"});
  visit("mu", o.mu,
        FieldInfo{.help = "fedprox, fednova: strength of the proximal term; none: 0.01 of fedprox, "
                          "0 of fednova",
                  .min = 0,
                  .max = 1e6});
  visit("alpha", o.alpha,
        FieldInfo{.help = "feddyn: strength of the dynamic regulariser", .min = 1e-9, .max = 1e6});
  visit("q", o.q,
        FieldInfo{.help = "qfedavg: 0 is federated averaging; a larger q favours clients with a "
                          "larger loss",
                  .min = 0,
                  .max = 100});
  visit("option", o.option,
        FieldInfo{.help = "scaffold: how a client's control variate is renewed: I takes the full "
                          "gradient at the round's model, II the mean of its local steps",
                  .choices = kScaffoldOptions});
}

template <class V>
void describe(V& visit, ServerOptions& o) {
  visit("server-learning-rate", o.learning_rate,
        FieldInfo{.help = "step size of the server; none: 1, of fedadagrad, fedadam and fedyogi "
                          "0.1, of diloco 0.7",
                  .min = 1e-9,
                  .max = 1e6});
  visit(
      "server-momentum", o.momentum,
      FieldInfo{
          .help = "fedavgm, diloco: momentum of the server; none: 0.9", .min = 0, .max = 0.999999});
  visit(
      "beta1", o.beta1,
      FieldInfo{.help = "fedadam, fedyogi: decay of the first moment", .min = 0, .max = 0.999999});
  visit(
      "beta2", o.beta2,
      FieldInfo{.help = "fedadam, fedyogi: decay of the second moment", .min = 0, .max = 0.999999});
  visit("tau", o.tau,
        FieldInfo{.help = "fedadagrad, fedadam, fedyogi: added to the root of the second moment",
                  .min = 1e-12,
                  .max = 1e6});
}

}  // namespace starling::strategy
