// SPDX-License-Identifier: Apache-2.0
// What clients measured of one model, together: the loss, and over those that say them metrics, and
// the accuracy where more than half do, so that no few decide which model is best. Of more than
// train::kMetricsMax metrics those that most clients say are kept, alike the first by name. Does
// not depend on the order in which the clients answer.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "coordinator/job/early_stopping.h"
#include "core/aggregate/joint_rule.h"
#include "core/aggregate/scalar_sums.h"
#include "core/update/contribution.h"

namespace starling::coordinator {

// "bad-scalars" where an evaluation says what no model has.
[[nodiscard]] Result<void> check_measured(const update::ContributionHead& head);

// Means weighted by rows.
class MeasuredMeans {
 public:
  // Requires: check_measured() and validate() passed; the head has a loss.
  void add(const update::ContributionHead& head);
  // Requires: something was added.
  Measured result() const;

 private:
  struct Mean {
    void add(double weight, double value);
    std::optional<double> value() const;

    aggregate::ScalarSums::Sum sum;
    std::size_t clients = 0;
  };

  Mean loss_, accuracy_;
  std::map<std::string, Mean> metrics_;
};

// By a rule that takes one number of each client. What fewer clients say than the rule needs is
// left out. Requires: at least rule.updates_min() heads, each as for MeasuredMeans::add().
Measured combine_measured(const aggregate::JointRule& rule,
                          std::span<const update::ContributionHead* const> heads);

}  // namespace starling::coordinator
