// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/measured_means.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
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

// The names to keep of these, with how many clients say each.
std::vector<std::string> names_kept(std::vector<std::pair<std::size_t, std::string>> names) {
  std::ranges::sort(names, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  if (names.size() > train::kMetricsMax) names.resize(train::kMetricsMax);
  std::vector<std::string> kept;
  for (auto& [clients, name] : names) kept.push_back(std::move(name));
  return kept;
}

bool is_majority(std::size_t clients, std::size_t of) { return 2 * clients > of; }

// `whose`: "an evaluation".
Result<void> check_metrics(const update::ContributionHead& head, std::string_view whose,
                           bool (*is_name)(std::string_view)) {
  std::size_t count = 0;
  std::string wrong;
  for_each_metric(head, [&](std::string_view name, double) {
    ++count;
    if (!is_name(name)) wrong = name;
  });
  if (!wrong.empty() || head.scalars.contains(std::string(update::kMetricPrefix))) {
    return rejected("bad-scalars",
                    fmt::format("{}'s metric cannot be called '{}'", whose, printable(wrong)));
  }
  if (count <= train::kMetricsMax) return {};
  return rejected("bad-scalars", fmt::format("{} has {} metrics; at most {} are taken", whose,
                                             count, train::kMetricsMax));
}

}  // namespace

Result<void> check_measured(const update::ContributionHead& head) {
  const auto accuracy = head.scalars.find("accuracy");
  if (accuracy != head.scalars.end() && !(accuracy->second >= 0 && accuracy->second <= 1)) {
    return rejected("bad-scalars", "an evaluation's accuracy must be from 0 to 1");
  }
  return check_metrics(head, "an evaluation", train::is_metric_name);
}

Result<void> check_train_metrics(const update::ContributionHead& head) {
  return check_metrics(head, "a training", train::is_train_metric_name);
}

void MeasuredMean::add(double weight, double value) {
  sum.weighted.add(weight * value);
  sum.weight.add(weight);
  ++clients;
}

std::optional<double> MeasuredMean::value() const {
  const double weight = sum.weight.value();
  if (!(weight > 0)) return std::nullopt;
  return sum.weighted.value() / weight;
}

void MetricMeans::add(const update::ContributionHead& head) {
  for_each_metric(head, [&](std::string_view name, double value) {
    means_[std::string(name)].add(head.weight, value);
  });
}

train::Metrics MetricMeans::result() const {
  std::vector<std::pair<std::size_t, std::string>> names;
  for (const auto& [name, mean] : means_) names.emplace_back(mean.clients, name);
  train::Metrics metrics;
  for (const std::string& name : names_kept(std::move(names))) {
    metrics[name] = means_.at(name).value().value();
  }
  return metrics;
}

std::size_t MetricMeans::clients(std::string_view name) const {
  const auto found = means_.find(name);
  return found == means_.end() ? 0 : found->second.clients;
}

void MeasuredMeans::add(const update::ContributionHead& head) {
  loss_.add(head.weight, head.scalars.at("loss"));
  if (const auto accuracy = head.scalars.find("accuracy"); accuracy != head.scalars.end()) {
    accuracy_.add(head.weight, accuracy->second);
  }
  metrics_.add(head);
}

Measured MeasuredMeans::result() const {
  Measured measured{.federated = true, .loss = loss_.value().value()};
  if (is_majority(accuracy_.clients, loss_.clients)) measured.accuracy = accuracy_.value();
  measured.metrics = metrics_.result();
  if (!is_majority(metrics_.clients(decisive_), loss_.clients)) measured.metrics.erase(decisive_);
  return measured;
}

Measured combine_measured(const aggregate::JointRule& rule,
                          std::span<const update::ContributionHead* const> heads,
                          std::string_view decisive) {
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
  if (is_majority(accuracies.size(), heads.size()) && accuracies.size() >= rule.updates_min()) {
    measured.accuracy = rule.combine(std::move(accuracies));
  }
  std::vector<std::pair<std::size_t, std::string>> names;
  for (const auto& [name, values] : metrics) {
    const bool too_few = name == decisive && !is_majority(values.size(), heads.size());
    if (values.size() >= rule.updates_min() && !too_few) names.emplace_back(values.size(), name);
  }
  for (const std::string& name : names_kept(std::move(names))) {
    measured.metrics[name] = rule.combine(std::move(metrics.at(name)));
  }
  return measured;
}

}  // namespace starling::coordinator
