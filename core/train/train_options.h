// SPDX-License-Identifier: Apache-2.0
// What the `[train]` table of a job says, and the learning rate of each round that follows from it.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/base/ids.h"

namespace starling::train {

inline constexpr std::array<std::string_view, 5> kOptimizers = {"sgd", "momentum", "nesterov",
                                                                "adam", "adamw"};
inline constexpr std::array<std::string_view, 3> kSchedules = {"constant", "step", "cosine"};

struct TrainOptions {
  int local_epochs = 1;
  int local_steps = 0;  // 0: local_epochs decides
  int batch_size = 32;
  std::string optimizer = "sgd";
  double learning_rate = 0.1;
  double momentum = 0.9;  // momentum, nesterov
  double weight_decay = 0;
  double beta1 = 0.9;  // adam, adamw
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double clip_norm = 0;  // 0: no clipping
  std::string schedule = "constant";
  int warmup_rounds = 0;
  int step_rounds = 10;  // step: every so many rounds ...
  double gamma = 0.1;    // ... the rate is multiplied by this

  friend bool operator==(const TrainOptions&, const TrainOptions&) = default;
};

template <class V>
void describe(V& visit, TrainOptions& o) {
  visit("local-epochs", o.local_epochs,
        FieldInfo{.help = "passes over the client's data per round", .min = 1, .max = 1e6});
  visit("local-steps", o.local_steps,
        FieldInfo{.help = "optimizer steps per round instead of epochs; 0: epochs decide",
                  .min = 0,
                  .max = 1e9});
  visit("batch-size", o.batch_size, FieldInfo{.help = "rows per step", .min = 1, .max = 1 << 20});
  visit("optimizer", o.optimizer,
        FieldInfo{.help = "local optimizer, as in torch.optim", .choices = kOptimizers});
  visit("learning-rate", o.learning_rate,
        FieldInfo{.help = "step size before the schedule", .min = 0, .max = 1e6});
  visit("momentum", o.momentum,
        FieldInfo{.help = "momentum, nesterov: decay of the velocity", .min = 0, .max = 1});
  visit("weight-decay", o.weight_decay,
        FieldInfo{.help = "L2 penalty; adamw: decoupled decay", .min = 0, .max = 1e3});
  visit("beta1", o.beta1,
        FieldInfo{.help = "adam, adamw: decay of the first moment", .min = 0, .max = 0.999999});
  visit("beta2", o.beta2,
        FieldInfo{.help = "adam, adamw: decay of the second moment", .min = 0, .max = 0.999999});
  visit("epsilon", o.epsilon,
        FieldInfo{.help = "adam, adamw: added to the denominator", .min = 0, .max = 1});
  visit("clip-norm", o.clip_norm,
        FieldInfo{.help = "largest L2 norm of a step's gradient; 0: no limit", .min = 0});
  visit("schedule", o.schedule,
        FieldInfo{.help = "the learning rate over the rounds", .choices = kSchedules});
  visit("warmup-rounds", o.warmup_rounds,
        FieldInfo{.help = "rounds that raise the rate linearly to its full value",
                  .unit = "rounds",
                  .min = 0,
                  .max = 1e9});
  visit("step-rounds", o.step_rounds,
        FieldInfo{
            .help = "step: rounds between two reductions", .unit = "rounds", .min = 1, .max = 1e9});
  visit("gamma", o.gamma, FieldInfo{.help = "step: factor of a reduction", .min = 0, .max = 1});
}

// Names the first option that is out of its range ("bad-train-options").
[[nodiscard]] Result<void> validate(const TrainOptions& options);

// The rate of `round` (1-based) of `rounds`. With w warm-up rounds: rate * round / (w + 1) while
// round <= w. Afterwards, with e = round - w - 1 and R = rounds - w: constant: rate; step:
// rate * gamma^floor(e / step_rounds) (torch StepLR); cosine: rate * (1 + cos(pi e / R)) / 2
// (torch CosineAnnealingLR with T_max = R). Rounds past the last count as the last.
double learning_rate_at(const TrainOptions& options, Round round, Round rounds);

}  // namespace starling::train
