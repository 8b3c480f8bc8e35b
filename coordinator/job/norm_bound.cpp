// SPDX-License-Identifier: Apache-2.0
#include "coordinator/job/norm_bound.h"

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

bool NormRaises::majority_was_refused() const {
  const auto refused = static_cast<std::size_t>(
      std::ranges::count_if(clients_, [](const auto& client) { return client.second; }));
  return refused >= kRefusedMin && 2 * refused > clients_.size();
}

void NormRaises::raise(bool in_advance) {
  ++count_;
  in_advance_ = in_advance;
  clients_.clear();
}

void add_norms(std::vector<double> norms, RecentNorms& recent, RecentNorms& first) {
  if (recent.empty()) first.clear();
  if (first.size() < NormBound::kRounds) first.push_back(norms);
  recent.push_back(std::move(norms));
  if (recent.size() > NormBound::kRounds) recent.pop_front();
}

// With m the multiple and f = max(m, 2), by which a raise multiplies: a bound b that refused the
// majority lies below the median norm of its attempt. If f b lets the majority pass, m times that
// median lies between m b and m f b. So one more raise, to f^2 b where the attempt fails all the
// same, reaches what the setting means, and at most f^2 / m times that, which is m where m >= 2.
bool NormRaises::attempt_ended(std::size_t asked, std::size_t refused, bool committed,
                               RecentNorms& norms) {
  const bool most = 2 * refused > asked;
  const bool blames = !multiple_ || (!most && (committed || count_ == 0));
  if (committed) {
    if (count_ > 0) norms.clear();
    count_ = 0;
    clients_.clear();
  } else if (most && majority_was_refused()) {
    raise(false);
  } else if (count_ > 0 && refused > 0 && !in_advance_) {
    raise(true);
  }
  return blames;
}

std::optional<double> NormBound::limit(const RecentNorms& norms, int raises) const {
  if (kind_ == Kind::kOff) return std::nullopt;
  if (kind_ == Kind::kAbsolute) return value_;
  std::vector<double> all;
  for (const std::vector<double>& round : norms) all.insert(all.end(), round.begin(), round.end());
  if (all.empty()) return std::nullopt;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) / 2);
  std::nth_element(all.begin(), middle, all.end());
  if (*middle <= 0) return std::nullopt;
  return value_ * *middle * std::pow(std::max(value_, 2.0), raises);
}

}  // namespace starling::coordinator
