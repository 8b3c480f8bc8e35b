// SPDX-License-Identifier: Apache-2.0
#include "coordinator/job/early_stopping.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/counted.h"
#include "core/base/decimal.h"

namespace starling::coordinator {

bool EarlyStopping::is_of(const Measured& measured) const {
  return options_.enabled() && options_.metric.starts_with("federated-") == measured.federated;
}

bool EarlyStopping::misses_accuracy(const Measured& measured) const {
  return is_of(measured) && wants_accuracy() && !measured.accuracy;
}

void EarlyStopping::record(Round round, const Measured& measured) {
  if (!is_of(measured) || misses_accuracy(measured)) return;
  const bool rises = wants_accuracy();
  const double value = rises ? *measured.accuracy : measured.loss;
  const double gain = best_ ? (rises ? value - *best_ : *best_ - value) : 1;
  if (std::isfinite(value) && (!best_ || gain > options_.min_change)) {
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
