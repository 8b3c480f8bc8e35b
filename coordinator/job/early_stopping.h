// SPDX-License-Identifier: Apache-2.0
// Ends a run when a metric has not improved for some evaluations. It follows from what was recorded
// of the rounds, so that a restart decides alike.
#pragma once

#include <optional>
#include <string>

#include "coordinator/job/job.h"
#include "core/base/ids.h"
#include "core/train/evaluator.h"

namespace starling::coordinator {

// A model that was evaluated.
struct Measured {
  bool federated = false;  // by clients on their held-out rows; else by the coordinator
  double loss = 0;
  std::optional<double> accuracy = {};  // of the models that have one
  train::Metrics metrics = {};
  friend bool operator==(const Measured&, const Measured&) = default;
};

class EarlyStopping {
 public:
  EarlyStopping() = default;  // never stops
  explicit EarlyStopping(StopOptions options) : options_(std::move(options)) {}

  // Call in order of round. Ignores evaluations of the other kind and those without the metric. A
  // value that is not a number is no improvement.
  void record(Round round, const Measured& measured);
  // Whether the metric belongs to this kind of evaluation (the coordinator's or the clients').
  bool is_of(const Measured& measured) const;
  // The metric's value; none where the evaluation lacks it. Requires: is_of().
  std::optional<double> value_of(const Measured& measured) const;
  // Why the run ends now: "accuracy has not improved for 5 evaluations since round 12 (0.8421)".
  std::optional<std::string> reason() const;
  // Whether there is a metric and nothing of it was recorded.
  bool unmeasured() const { return options_.enabled() && !best_ && without_improvement_ == 0; }

 private:
  StopOptions options_;
  std::optional<double> best_;
  Round best_round_ = 0;
  int without_improvement_ = 0;
};

}  // namespace starling::coordinator
