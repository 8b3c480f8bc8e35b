// SPDX-License-Identifier: Apache-2.0
#include "core/report/run.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace starling::report {

std::vector<double> Run::column(Measure measure) const {
  std::vector<double> values;
  values.reserve(evaluations.size());
  for (const Evaluation& evaluation : evaluations) values.push_back(evaluation.at(measure));
  return values;
}

bool Run::has(Measure measure) const { return last(measure).has_value(); }

std::optional<double> Run::last(Measure measure) const {
  const auto found = std::find_if(
      evaluations.rbegin(), evaluations.rend(),
      [measure](const Evaluation& evaluation) { return std::isfinite(evaluation.at(measure)); });
  if (found == evaluations.rend()) return std::nullopt;
  return found->at(measure);
}

std::optional<std::string> Run::setting(std::string_view key) const {
  for (const auto& [full_key, value] : settings) {
    if (full_key == key || full_key.ends_with("." + std::string(key))) return value;
  }
  return std::nullopt;
}

double Run::local_steps() const {
  const std::string text = setting("local-steps").value_or("1");
  int period = 1;
  std::from_chars(text.data(), text.data() + text.size(), period);
  return std::max(period, 1);
}

}  // namespace starling::report
