// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/measured_means.h"

#include <fmt/format.h>

#include <vector>

#include "core/base/nearest_name.h"

namespace starling::coordinator {
namespace {

// Of each metric of a client: visit(name, value).
template <class Visit>
void for_each_metric(const update::ContributionHead& head, const Visit& visit) {
  const std::string_view prefix = update::kMetricPrefix;
  for (auto at = head.scalars.lower_bound(std::string(prefix));
       at != head.scalars.end() && at->first.starts_with(prefix); ++at) {
    visit(std::string_view(at->first).substr(prefix.size()), at->second);
  }
}

void add_to(aggregate::ScalarSums::Sum& sum, double weight, double value) {
  sum.weighted.add(weight * value);
  sum.weight.add(weight);
}

std::optional<double> mean_of(const aggregate::ScalarSums::Sum& sum) {
  const double weight = sum.weight.value();
  if (!(weight > 0)) return std::nullopt;
  return sum.weighted.value() / weight;
}

}  // namespace

Result<void> check_measured(const update::ContributionHead& head) {
  const auto accuracy = head.scalars.find("accuracy");
  if (accuracy != head.scalars.end() && !(accuracy->second >= 0 && accuracy->second <= 1)) {
    return rejected("bad-scalars", "an evaluation's accuracy must be from 0 to 1");
  }
  std::size_t count = 0;
  std::string wrong;
  for_each_metric(head, [&](std::string_view name, double) {
    ++count;
    if (!train::is_metric_name(name)) wrong = name;
  });
  if (!wrong.empty() || head.scalars.contains(std::string(update::kMetricPrefix))) {
    return rejected("bad-scalars",
                    fmt::format("an evaluation's metric cannot be called '{}'", printable(wrong)));
  }
  if (count <= train::kMetricsMax) return {};
  return rejected("bad-scalars", fmt::format("an evaluation has {} metrics; at most {} are taken",
                                             count, train::kMetricsMax));
}

void MeasuredMeans::add(const update::ContributionHead& head) {
  add_to(loss_, head.weight, head.scalars.at("loss"));
  if (const auto accuracy = head.scalars.find("accuracy"); accuracy != head.scalars.end()) {
    add_to(accuracy_, head.weight, accuracy->second);
  }
  for_each_metric(head, [&](std::string_view name, double value) {
    if (left_out_from_ && name >= *left_out_from_) return;
    add_to(metrics_[std::string(name)], head.weight, value);
    if (metrics_.size() <= train::kMetricsMax) return;
    const auto last = std::prev(metrics_.end());
    left_out_from_ = last->first;
    metrics_.erase(last);
  });
}

Measured MeasuredMeans::result() const {
  Measured measured{
      .federated = true, .loss = mean_of(loss_).value(), .accuracy = mean_of(accuracy_)};
  for (const auto& [name, sum] : metrics_) measured.metrics[name] = mean_of(sum).value();
  return measured;
}

Measured combine_measured(const aggregate::JointRule& rule,
                          std::span<const update::ContributionHead* const> heads) {
  std::vector<double> losses, accuracies;
  std::map<std::string, std::vector<double>> metrics;
  for (const update::ContributionHead* head : heads) {
    losses.push_back(head->scalars.at("loss"));
    const auto accuracy = head->scalars.find("accuracy");
    if (accuracy != head->scalars.end()) accuracies.push_back(accuracy->second);
    for_each_metric(*head, [&](std::string_view name, double value) {
      metrics[std::string(name)].push_back(value);
    });
  }
  Measured measured{.federated = true, .loss = rule.combine(std::move(losses))};
  if (!accuracies.empty() && accuracies.size() >= rule.updates_min()) {
    measured.accuracy = rule.combine(std::move(accuracies));
  }
  for (auto& [name, values] : metrics) {
    if (values.size() < rule.updates_min()) continue;
    if (measured.metrics.size() == train::kMetricsMax) break;
    measured.metrics[name] = rule.combine(std::move(values));
  }
  return measured;
}

}  // namespace starling::coordinator
