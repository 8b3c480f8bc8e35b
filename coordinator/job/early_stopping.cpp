// SPDX-License-Identifier: Apache-2.0
#include "coordinator/job/early_stopping.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/counted.h"
#include "core/base/decimal.h"

namespace starling::coordinator {

bool EarlyStopping::is_of(const Measured& measured) const {
  return options_.enabled() && options_.is_federated() == measured.federated;
}

std::optional<double> EarlyStopping::value_of(const Measured& measured) const {
  const std::string name = options_.name();
  if (name == "loss") return measured.loss;
  if (name == "accuracy") return measured.accuracy;
  const auto found = measured.metrics.find(name);
  return found == measured.metrics.end() ? std::nullopt : std::optional(found->second);
}

void EarlyStopping::record(Round round, const Measured& measured) {
  if (!is_of(measured)) return;
  const std::optional<double> value = value_of(measured);
  if (!value) return;
  const double gain = best_ ? (options_.more_is_better() ? *value - *best_ : *best_ - *value) : 1;
  if (std::isfinite(*value) && (!best_ || gain > options_.min_change)) {
    best_ = value;
    best_round_ = round;
    without_improvement_ = 0;
  } else {
    ++without_improvement_;
  }
}

std::optional<std::string> EarlyStopping::reason() const {
  if (!options_.enabled() || without_improvement_ < options_.patience) return std::nullopt;
  const std::string since =
      best_ ? fmt::format(" since round {} ({})", best_round_, decimal(*best_)) : "";
  const std::string by =
      options_.min_change > 0 ? fmt::format(" by more than {:g}", options_.min_change) : "";
  return fmt::format("{} has not improved{} for {}{}", options_.metric, by,
                     counted(static_cast<std::uint64_t>(without_improvement_), "evaluation"),
                     since);
}

}  // namespace starling::coordinator
