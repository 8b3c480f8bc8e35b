// SPDX-License-Identifier: Apache-2.0
// What clients measured of one model, together: the loss, and over those that say them metrics; the
// accuracy, and the metric that ends the run, where more than half do, so that no few decide which
// model is best. Of more than train::kMetricsMax metrics those that most clients say are kept,
// alike the first by name. Does not depend on the order in which the clients answer.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "coordinator/job/early_stopping.h"
#include "core/aggregate/joint_rule.h"
#include "core/aggregate/scalar_sums.h"
#include "core/train/evaluator.h"
#include "core/update/contribution.h"

namespace starling::coordinator {

// "bad-scalars" where an evaluation says what no model has, or a training a metric that has no
// proper name.
[[nodiscard]] Result<void> check_measured(const update::ContributionHead& head);
[[nodiscard]] Result<void> check_train_metrics(const update::ContributionHead& head);

// A mean weighted by rows, over the clients that say the number.
struct MeasuredMean {
  void add(double weight, double value);
  std::optional<double> value() const;

  aggregate::ScalarSums::Sum sum;
  std::size_t clients = 0;
};

// Of the metrics alone, as trainings have them.
class MetricMeans {
 public:
  // Requires: the head was checked.
  void add(const update::ContributionHead& head);
  train::Metrics result() const;
  // How many say it.
  std::size_t clients(std::string_view name) const;

 private:
  std::map<std::string, MeasuredMean, std::less<>> means_;
};

class MeasuredMeans {
 public:
  // `decisive`: the name of the metric that ends the run, if any.
  explicit MeasuredMeans(std::string decisive = {}) : decisive_(std::move(decisive)) {}
  // Requires: check_measured() and validate() passed; the head has a loss.
  void add(const update::ContributionHead& head);
  // Requires: something was added.
  Measured result() const;

 private:
  std::string decisive_;
  MeasuredMean loss_, accuracy_;
  MetricMeans metrics_;
};

// By a rule that takes one number of each client. What fewer clients say than the rule needs is
// left out. Requires: at least rule.updates_min() heads, each as for MeasuredMeans::add().
Measured combine_measured(const aggregate::JointRule& rule,
                          std::span<const update::ContributionHead* const> heads,
                          std::string_view decisive = {});

}  // namespace starling::coordinator
