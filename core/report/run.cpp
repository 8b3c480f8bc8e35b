// SPDX-License-Identifier: Apache-2.0
#include "core/report/run.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace starling::report {

namespace {

template <class Key>
std::vector<double> column_of(const std::vector<Evaluation>& evaluations, const Key& key) {
  std::vector<double> values;
  values.reserve(evaluations.size());
  for (const Evaluation& evaluation : evaluations) values.push_back(evaluation.at(key));
  return values;
}

}  // namespace

std::string MetricKey::title() const {
  return std::string(kSources[static_cast<std::size_t>(source)].title) + " " + name;
}

double Evaluation::at(const MetricKey& metric) const {
  const auto found = metrics.find(metric);
  return found == metrics.end() ? kNotMeasured : found->second;
}

std::vector<double> Run::column(Measure measure) const { return column_of(evaluations, measure); }

std::vector<double> Run::column(const MetricKey& metric) const {
  return column_of(evaluations, metric);
}

std::vector<MetricKey> Run::metrics() const {
  std::set<MetricKey> keys;
  for (const Evaluation& evaluation : evaluations) {
    for (const auto& [key, value] : evaluation.metrics) keys.insert(key);
  }
  return {keys.begin(), keys.end()};
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
