// SPDX-License-Identifier: Apache-2.0
#include "core/train/train_options.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <type_traits>

namespace starling::train {
namespace {

// Collects the first field outside its FieldInfo.
class RangeCheck {
 public:
  void operator()(std::string_view name, const std::string& value, const FieldInfo& info) {
    if (info.choices.empty() || std::ranges::find(info.choices, value) != info.choices.end()) {
      return;
    }
    std::string choices;
    for (const std::string_view choice : info.choices) {
      choices += (choices.empty() ? "" : ", ") + std::string(choice);
    }
    fail(name, "\"" + value + "\"; take one of " + choices);
  }

  template <class Number>
    requires std::is_arithmetic_v<Number>
  void operator()(std::string_view name, Number value, const FieldInfo& info) {
    const auto number = static_cast<double>(value);
    if (std::isfinite(number) && number >= info.min && number <= info.max) return;
    fail(name, std::to_string(value) + ", outside " + std::to_string(info.min) + " ... " +
                   std::to_string(info.max));
  }

  Result<void> result() const {
    if (error_) return *error_;
    return {};
  }

 private:
  void fail(std::string_view name, const std::string& why) {
    if (!error_) {
      error_ = wrong_setting("bad-train-options", "train." + std::string(name) + " is " + why);
    }
  }

  std::optional<Error> error_;
};

}  // namespace

Result<void> validate(const TrainOptions& options) {
  RangeCheck check;
  TrainOptions copy = options;
  describe(check, copy);
  return check.result();
}

double learning_rate_at(const TrainOptions& options, Round round, Round rounds) {
  const double t = std::clamp<double>(round, 1, std::max<double>(rounds, 1));
  const double warmup = std::min<double>(options.warmup_rounds, rounds);
  if (t <= warmup) return options.learning_rate * t / (warmup + 1);
  const double elapsed = t - warmup - 1;
  if (options.schedule == "step") {
    return options.learning_rate *
           std::pow(options.gamma, std::floor(elapsed / options.step_rounds));
  }
  if (options.schedule == "cosine") {
    const double length = std::max<double>(rounds, 1) - warmup;
    return options.learning_rate * (1 + std::cos(std::numbers::pi * elapsed / length)) / 2;
  }
  return options.learning_rate;
}

}  // namespace starling::train
