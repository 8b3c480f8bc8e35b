// SPDX-License-Identifier: Apache-2.0
#include "core/sim/distribution.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/base/clock.h"

namespace starling::sim {
namespace {

constexpr double kSigmaMax = 10;

Error bad(std::string_view text, Unit unit) {
  constexpr std::array<std::string_view, 3> kExamples = {
      "20ms, uniform:5ms,50ms, exponential:20ms or lognormal:20ms,0.5",
      "10Mbit/s, uniform:5Mbit/s,20Mbit/s, exponential:10Mbit/s or lognormal:10Mbit/s,0.5",
      "1, uniform:0.5,2, exponential:1 or lognormal:1,0.5"};
  return wrong_setting("bad-distribution",
                       "'" + std::string(text) + "' is not a distribution; write " +
                           std::string(kExamples[static_cast<std::size_t>(unit)]));
}

Result<double> read_number(std::string_view text, std::string_view whole, Unit unit) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return bad(whole, unit);
  if (!std::isfinite(value) || value < 0) return bad(whole, unit);
  return value;
}

// In bytes a second.
constexpr std::array<std::pair<std::string_view, double>, 8> kRates = {{{"Gbit/s", 1e9 / 8},
                                                                        {"Mbit/s", 1e6 / 8},
                                                                        {"kbit/s", 1e3 / 8},
                                                                        {"bit/s", 1.0 / 8},
                                                                        {"GB/s", 1e9},
                                                                        {"MB/s", 1e6},
                                                                        {"kB/s", 1e3},
                                                                        {"B/s", 1}}};

Result<double> read_rate(std::string_view text, std::string_view whole) {
  for (const auto& [suffix, factor] : kRates) {
    if (!text.ends_with(suffix)) continue;
    text.remove_suffix(suffix.size());
    STARLING_ASSIGN(const double value, read_number(text, whole, Unit::kRate));
    if (value == 0) return bad(whole, Unit::kRate);
    return value * factor;
  }
  return bad(whole, Unit::kRate);
}

Result<double> read_value(std::string_view text, std::string_view whole, Unit unit) {
  if (unit == Unit::kRate) return read_rate(text, whole);
  if (unit == Unit::kFactor) return read_number(text, whole, unit);
  const auto duration = parse_duration(text);
  if (!duration || *duration < Duration::zero()) return bad(whole, unit);
  return to_seconds(*duration);
}

}  // namespace

Result<Distribution> Distribution::parse(std::string_view text, Unit unit) {
  constexpr std::array<std::pair<std::string_view, Kind>, 3> kKinds = {
      {{"uniform", Kind::kUniform},
       {"exponential", Kind::kExponential},
       {"lognormal", Kind::kLognormal}}};
  Distribution distribution;
  const std::size_t colon = text.find(':');
  if (colon == text.npos) {
    STARLING_ASSIGN(distribution.first_, read_value(text, text, unit));
    return distribution;
  }
  bool known = false;
  for (const auto& [name, kind] : kKinds) {
    if (text.substr(0, colon) != name) continue;
    distribution.kind_ = kind;
    known = true;
  }
  if (!known) return bad(text, unit);
  const std::string_view values = text.substr(colon + 1);
  const std::size_t comma = values.find(',');
  STARLING_ASSIGN(distribution.first_, read_value(values.substr(0, comma), text, unit));
  const bool wants_two = distribution.kind_ != Kind::kExponential;
  if (wants_two != (comma != values.npos)) return bad(text, unit);
  if (!wants_two) return distribution;
  const bool sigma = distribution.kind_ == Kind::kLognormal;
  STARLING_ASSIGN(distribution.second_,
                  read_value(values.substr(comma + 1), text, sigma ? Unit::kFactor : unit));
  const bool fits =
      sigma ? distribution.second_ <= kSigmaMax : distribution.second_ >= distribution.first_;
  if (!fits) return bad(text, unit);
  return distribution;
}

Result<Distribution> Distribution::parse(std::string_view text, Unit unit, std::string_view key) {
  auto distribution = parse(text, unit);
  if (!distribution) return distribution.error().within(key);
  return distribution;
}

std::string write_rate(double bytes_a_second) {
  std::string shortest;
  for (const auto& [suffix, factor] : kRates) {
    const double value = bytes_a_second / factor;
    // Of bytes always, so that there is one.
    if (value * factor != bytes_a_second && factor != 1) continue;
    std::array<char, 512> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                   std::chars_format::fixed);
    std::string text = std::string(digits.data(), end.ptr).append(suffix);
    if (shortest.empty() || text.size() < shortest.size()) shortest = std::move(text);
  }
  return shortest;
}

double Distribution::least() const {
  return kind_ == Kind::kConstant || kind_ == Kind::kUniform ? first_ : 0;
}

double Distribution::draw(Rng& rng) const {
  switch (kind_) {
    case Kind::kConstant:
      return first_;
    case Kind::kUniform:
      return rng.uniform(first_, second_);
    case Kind::kExponential:
      return -first_ * std::log1p(-rng.uniform());
    case Kind::kLognormal:
      return first_ * std::exp(second_ * rng.normal());
  }
  return first_;
}

}  // namespace starling::sim
