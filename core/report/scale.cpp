// SPDX-License-Identifier: Apache-2.0
#include "core/report/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/base/check.h"

namespace starling::report {
namespace {

// The smallest of 1, 2, 5 times a power of ten that is at least `rough`.
double round_step(double rough) {
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// Rounding alone must not take the ends' own ticks away.
constexpr double kSlack = 1e-6;

double linear_step(double low, double high, int count_max) {
  double step = round_step((high - low) / std::max(count_max, 2));
  const auto count = [&] {
    return std::floor(high / step + kSlack) - std::ceil(low / step - kSlack) + 1;
  };
  while (count() > count_max) step = round_step(step * 1.5);
  return step;
}

std::vector<double> linear_ticks(double low, double high, int count_max) {
  const double step = linear_step(low, high, count_max);
  std::vector<double> ticks;
  for (double k = std::ceil(low / step - kSlack); k <= high / step + kSlack; ++k) {
    ticks.push_back(k == 0 ? 0 : k * step);
  }
  return ticks;
}

std::vector<double> decades(double low, double high, int count_max,
                            std::span<const double> factors) {
  const double first = std::floor(std::log10(low));
  const double last = std::ceil(std::log10(high));
  const double every = std::max(1.0, std::ceil((last - first + 1) / count_max));
  std::vector<double> ticks;
  for (double power = std::ceil(first / every) * every; power <= last; power += every) {
    for (const double factor : factors) {
      const double tick = factor * std::pow(10, power);
      if (tick >= low * (1 - kSlack) && tick <= high * (1 + kSlack)) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::vector<double> logarithmic_ticks(double low, double high, int count_max) {
  static constexpr std::array<double, 3> kFine = {1, 2, 5};
  static constexpr std::array<double, 2> kCoarse = {1, 3};
  const auto fits = [&](const std::vector<double>& ticks) {
    return ticks.size() >= 2 && ticks.size() <= static_cast<std::size_t>(count_max);
  };
  if (std::log10(high / low) <= 3) {
    if (auto ticks = decades(low, high, 100, kFine); fits(ticks)) return ticks;
    if (auto ticks = decades(low, high, 100, kCoarse); fits(ticks)) return ticks;
  }
  auto ticks = decades(low, high, count_max, std::array<double, 1>{1});
  // Less than a decade holds one power of ten at most: plain steps say more.
  return ticks.size() >= 2 ? ticks : linear_ticks(low, high, count_max);
}

bool can_be_shown(double value, bool logarithmic) {
  return std::isfinite(value) && (!logarithmic || value > 0);
}

std::string with_thousands(std::string digits) {
  const std::size_t begin = digits.starts_with('-') ? 1 : 0;
  for (std::size_t at = std::min(digits.find('.'), digits.size()); at > begin + 3; at -= 3) {
    digits.insert(at - 3, ",");
  }
  return digits;
}

}  // namespace

Scale::Scale(double low, double high, bool logarithmic)
    : low_(low), high_(high), logarithmic_(logarithmic) {
  STARLING_CHECK(std::isfinite(low) && std::isfinite(high) && low < high);
  STARLING_CHECK(!logarithmic || low > 0);
}

std::optional<double> Scale::share(double value) const {
  if (!can_be_shown(value, logarithmic_)) return std::nullopt;
  if (logarithmic_) return (std::log(value) - std::log(low_)) / (std::log(high_) - std::log(low_));
  return (value - low_) / (high_ - low_);
}

std::vector<double> Scale::ticks(int count_max) const {
  return logarithmic_ ? logarithmic_ticks(low_, high_, count_max)
                      : linear_ticks(low_, high_, count_max);
}

std::optional<Scale> fit_scale(std::span<const double> values, bool logarithmic, bool round_ends,
                               int ticks_max) {
  // Beyond these a difference or a quotient of two values is not finite any more.
  constexpr double kLargest = 1e300;
  constexpr double kSmallest = 1e-300;
  std::optional<double> low;
  std::optional<double> high;
  for (const double value : values) {
    if (!can_be_shown(value, logarithmic)) continue;
    const double clamped = std::clamp(value, logarithmic ? kSmallest : -kLargest, kLargest);
    low = std::min(low.value_or(clamped), clamped);
    high = std::max(high.value_or(clamped), clamped);
  }
  if (!low) return std::nullopt;
  if (logarithmic) {
    if (!round_ends && *high / *low < 1.5) return Scale(*low / 2, *high * 2, true);
    if (!round_ends) return Scale(*low, *high, true);
    const double bottom = std::floor(std::log10(*low) + kSlack);
    const double top = std::ceil(std::log10(*high) - kSlack);
    return Scale(std::pow(10, bottom), std::pow(10, std::max(top, bottom + 1)), true);
  }
  const double room = std::max(std::abs(*low), std::abs(*high)) * 1e-6;
  if (*high - *low <= room) {
    const double around = *low == 0 ? 1 : std::abs(*low) / 10;
    return Scale(*low - around, *high + around, false);
  }
  if (!round_ends) return Scale(*low, *high, false);
  // Widened ends may ask for longer steps, which widen them again.
  double step = linear_step(*low, *high, ticks_max);
  for (;;) {
    const double bottom = std::floor(*low / step + kSlack) * step;
    const double top = std::ceil(*high / step - kSlack) * step;
    const double wider = linear_step(bottom, top, ticks_max);
    if (wider <= step) return Scale(bottom, top, false);
    step = wider;
  }
}

DisplayUnit display_unit(Quantity quantity, double high) {
  struct Step {
    double from;
    double size;
    const char* name;
  };
  static constexpr std::array<Step, 6> kBytes = {{{0, 1, "B"},
                                                  {1e3, 1e3, "kB"},
                                                  {1e6, 1e6, "MB"},
                                                  {1e9, 1e9, "GB"},
                                                  {1e12, 1e12, "TB"},
                                                  {1e15, 1e15, "PB"}}};
  static constexpr std::array<Step, 6> kSeconds = {{{0, 1e-6, "µs"},
                                                    {1e-3, 1e-3, "ms"},
                                                    {1, 1, "s"},
                                                    {300, 60, "min"},
                                                    {4 * 3600, 3600, "h"},
                                                    {4 * 86400, 86400, "d"}}};
  if (quantity == Quantity::kNumber) return {};
  const auto& steps = quantity == Quantity::kBytes ? kBytes : kSeconds;
  const Step* chosen = &steps.front();
  for (const Step& step : steps) {
    if (std::abs(high) >= step.from) chosen = &step;
  }
  if (high == 0 && quantity == Quantity::kSeconds) return {1, "s"};
  return {chosen->size, chosen->name};
}

std::string tick_label(double value, double step) {
  const double size = step > 0 ? std::max(std::abs(value), step) : std::abs(value);
  if (value != 0 && (size >= 1e7 || size < 1e-4 || (step == 0 && size < 1e-3))) {
    std::string text = fmt::format("{:.3g}", value);
    const std::size_t exponent = text.find('e') + 2;  // "1e-09" is more than it says
    if (exponent < text.size() && text[exponent] == '0') text.erase(exponent, 1);
    return text;
  }
  if (step <= 0) return with_thousands(fmt::format("{:g}", value));
  const int decimals = std::clamp(static_cast<int>(-std::floor(std::log10(step) + kSlack)), 0, 9);
  return with_thousands(fmt::format("{:.{}f}", value, decimals));
}

std::string format_count(double value) {
  if (!std::isfinite(value)) return "–";
  if (std::abs(value) >= 1e15) return fmt::format("{:.4g}", value);
  return with_thousands(fmt::format("{:.0f}", value));
}

std::string format_value(Quantity quantity, double value) {
  if (!std::isfinite(value)) return "–";
  if (quantity == Quantity::kNumber) {
    const bool whole = value == std::floor(value) || std::abs(value) >= 1000;
    if (whole && std::abs(value) < 1e15) return format_count(value);
    return fmt::format("{:.4g}", value);
  }
  const DisplayUnit unit = display_unit(quantity, value);
  return fmt::format("{:.4g} {}", value / unit.size, unit.name);
}

}  // namespace starling::report
