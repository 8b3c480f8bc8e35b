// SPDX-License-Identifier: Apache-2.0
// Axes: where values lie, at which round numbers the ticks stand, and in which unit they are said.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace starling::report {

enum class Quantity { kNumber, kSeconds, kBytes };

// [low, high] laid on [0, 1]; both ends finite, low < high, of a logarithmic scale both positive.
class Scale {
 public:
  Scale(double low, double high, bool logarithmic);

  double low() const { return low_; }
  double high() const { return high_; }
  bool logarithmic() const { return logarithmic_; }
  // Nothing for what cannot be shown: not finite, or not positive on a logarithmic scale. Outside
  // [0, 1] for values beyond the ends.
  std::optional<double> share(double value) const;
  // At most `count_max` >= 3 round values within the ends, ascending: steps of 1, 2 or 5 times a
  // power of ten, on a logarithmic scale powers of ten where it spans more than two of them.
  std::vector<double> ticks(int count_max) const;

 private:
  double low_;
  double high_;
  bool logarithmic_;
};

// Around all of `values` that can be shown. A single value gets room around it; nothing where there
// is none. `round_ends`: widened to the next ticks, as for vertical axes.
std::optional<Scale> fit_scale(std::span<const double> values, bool logarithmic, bool round_ends,
                               int ticks_max);

// A value in `unit` is the value divided by `size`.
struct DisplayUnit {
  double size = 1;
  std::string name;  // "MB", "min"; empty for plain numbers
};
// For an axis up to `high`: bytes in powers of 1000, seconds in what people say.
DisplayUnit display_unit(Quantity quantity, double high);

// A tick, with the decimals that its neighbour at distance `step` asks for: "0.85", "1,200".
// `step` 0: on a logarithmic axis, "0.001" or "1e-9".
std::string tick_label(double value, double step);

// With its unit, for people: "0.8421", "12.3 MB", "3.4 min"; "–" where not finite.
std::string format_value(Quantity quantity, double value);
// "12,345"
std::string format_count(double value);

}  // namespace starling::report
