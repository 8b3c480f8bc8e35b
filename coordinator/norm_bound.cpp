// SPDX-License-Identifier: Apache-2.0
#include "coordinator/norm_bound.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

namespace starling::coordinator {

Result<NormBound> NormBound::parse(std::string_view text) {
  if (text == "off") return NormBound(Kind::kOff, 0);
  const bool multiple = text.ends_with('x');
  const std::string_view number = text.substr(0, text.size() - (multiple ? 1 : 0));
  double value = 0;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), value);
  const bool whole = code == std::errc() && end == number.data() + number.size();
  if (whole && std::isfinite(value) && value > 0 && (!multiple || value >= 1)) {
    return NormBound(multiple ? Kind::kMultiple : Kind::kAbsolute, value);
  }
  return wrong_setting(
      "setting-invalid",
      "aggregation.norm-max = \"" + std::string(text) +
          "\" must be a norm (\"12.5\"), a multiple of at least 1 of the median norm "
          "of the rounds before (\"10x\"), or \"off\"");
}

std::optional<double> NormBound::limit(const RecentNorms& norms) const {
  if (kind_ == Kind::kOff) return std::nullopt;
  if (kind_ == Kind::kAbsolute) return value_;
  std::vector<double> all;
  for (const std::vector<double>& round : norms) all.insert(all.end(), round.begin(), round.end());
  if (all.empty()) return std::nullopt;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle > 0 ? std::optional(value_ * *middle) : std::nullopt;
}

}  // namespace starling::coordinator
