// SPDX-License-Identifier: Apache-2.0
// Random quantities as a user writes them: "20ms", "uniform:5ms,50ms", "lognormal:20ms,0.5".
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace starling::sim {

// How the numbers of a distribution are written.
enum class Unit {
  kDuration,  // "20ms", in seconds
  kRate,      // "10Mbit/s" (bit, kbit, Mbit, Gbit; B, kB, MB, GB), in bytes a second
  kFactor,    // "1.5"
};

// VALUE                      always this
// uniform:LOW,HIGH
// exponential:MEAN
// lognormal:MEDIAN,SIGMA     MEDIAN * exp(SIGMA * standard normal); SIGMA in [0, 10]
class Distribution {
 public:
  // Always 0.
  Distribution() = default;
  // Fails with "bad-distribution" and a sentence that shows the forms. Negative or infinite values
  // are refused.
  [[nodiscard]] static Result<Distribution> parse(std::string_view text, Unit unit);
  // The sentence then begins with the key that says it.
  [[nodiscard]] static Result<Distribution> parse(std::string_view text, Unit unit,
                                                  std::string_view key);

  bool constant() const { return kind_ == Kind::kConstant; }
  // The smallest value that can be drawn.
  double least() const;
  // Draws nothing where it is constant.
  double draw(Rng& rng) const;

 private:
  enum class Kind { kConstant, kUniform, kExponential, kLognormal };

  Kind kind_ = Kind::kConstant;
  double first_ = 0;
  double second_ = 0;
};

// The shortest of the forms that are read as exactly this rate: "1Gbit/s", "125.5B/s".
std::string write_rate(double bytes_a_second);

}  // namespace starling::sim
