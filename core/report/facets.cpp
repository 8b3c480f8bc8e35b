// SPDX-License-Identifier: Apache-2.0
#include "core/report/facets.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/report/comparison.h"

namespace starling::report {
namespace {

using Texts = std::vector<std::string>;

Texts first_of(const Texts& values, std::size_t count) {
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count)};
}

// The runs by kind and by the values of the first `count` keys, in the order of their first runs.
std::vector<std::vector<std::size_t>> by_values(std::span<const Run> runs,
                                                const Differences& differences, std::size_t count) {
  std::vector<std::vector<std::size_t>> groups;
  std::map<std::pair<RunKind, Texts>, std::size_t> group_of;
  for (std::size_t i = 0; i < differences.values.size(); ++i) {
    const auto [found, is_new] =
        group_of.try_emplace({runs[i].kind, first_of(differences.values[i], count)}, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(i);
  }
  return groups;
}

std::size_t largest(const std::vector<std::vector<std::size_t>>& groups) {
  std::size_t size = 0;
  for (const auto& group : groups) size = std::max(size, group.size());
  return size;
}

std::string joined(const std::string& a, const std::string& b, const char* between) {
  return a.empty() || b.empty() ? a + b : a + between + b;
}

// What decides an axis of all these values: the ends, and of a logarithmic one the least that it
// can show.
class Reach {
 public:
  // Values below `floor` do not count.
  explicit Reach(double floor = -kNone) : floor_(floor) {}

  void add(std::span<const double> values) {
    for (const double value : values) {
      if (!std::isfinite(value) || value < floor_) continue;
      low_ = std::min(low_, value);
      high_ = std::max(high_, value);
      if (value > 0) least_positive_ = std::min(least_positive_, value);
    }
  }
  std::vector<double> values() const { return {low_, high_, least_positive_}; }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  double floor_;
  double low_ = kNone;
  double high_ = -kNone;
  double least_positive_ = kNone;
};

// The fewest first keys whose panels are small enough; never all keys, which would leave one line a
// panel.
std::size_t keys_of_panels(std::span<const Run> runs, const Differences& differences) {
  std::size_t count = 0;
  while (count + 1 < differences.keys.size() &&
         largest(by_values(runs, differences, count)) > kPanelLinesMax) {
    ++count;
  }
  return count;
}

}  // namespace

std::vector<Facet> make_facets(std::span<const Run> runs, std::span<const std::string> names) {
  if (runs.size() <= kLinesMax) return {};
  Differences differing = differences(runs);
  differing.values.resize(runs.size());
  const std::size_t shared = keys_of_panels(runs, differing);
  const bool mixed =
      std::ranges::any_of(runs, [&](const Run& run) { return run.kind != runs.front().kind; });
  const std::span keys(differing.keys);
  std::map<std::string, int> styles;  // by the name within a panel
  std::vector<Facet> facets;
  for (const std::vector<std::size_t>& group : by_values(runs, differing, shared)) {
    const Run& first = runs[group.front()];
    const std::string title =
        mixed ? first.kind == RunKind::kGossip ? "gossip" : "federated"
              : words_of(keys.first(shared),
                         std::span(differing.values[group.front()]).first(shared));
    for (std::size_t begin = 0; begin < group.size(); begin += kPanelLinesMax) {
      const std::size_t end = std::min(group.size(), begin + kPanelLinesMax);
      Facet facet;
      for (std::size_t k = begin; k < end; ++k) {
        const std::size_t i = group[k];
        std::string name =
            words_of(keys.subspan(shared), std::span(differing.values[i]).subspan(shared));
        if (name.empty()) name = names[i];
        facet.runs.push_back(i);
        facet.styles.push_back(
            styles.try_emplace(name, static_cast<int>(styles.size())).first->second);
        facet.names.push_back(std::move(name));
      }
      const bool whole = group.size() <= kPanelLinesMax;
      const std::string span = facet.names.front() + " to " + facet.names.back();
      facet.title = whole ? title : joined(title, span, "; ");
      facets.push_back(std::move(facet));
    }
  }
  return facets;
}

std::vector<FacetPanel> make_panels(const Chart& whole, std::span<const Facet> facets) {
  Reach xs;
  Reach ys = whole.y.floor > 0 ? Reach(whole.y.floor) : Reach();
  for (const Series& series : whole.series) {
    if (series.line == Line::kPredicted) continue;
    xs.add(series.x);
    for (const auto* values : {&series.y, &series.lower, &series.upper}) ys.add(*values);
  }
  std::vector<FacetPanel> panels;
  for (std::size_t f = 0; f < facets.size(); ++f) {
    const Facet& facet = facets[f];
    FacetPanel panel{f, {.title = facet.title, .x = whole.x, .y = whole.y}};
    panel.chart.x.reaches = xs.values();
    panel.chart.y.reaches = ys.values();
    bool measured = false;
    for (const Series& series : whole.series) {
      const auto run = std::ranges::find(facet.runs, static_cast<std::size_t>(series.style));
      if (run == facet.runs.end()) continue;
      const auto at = static_cast<std::size_t>(run - facet.runs.begin());
      Series& own = panel.chart.series.emplace_back(series);
      own.style = facet.styles[at];
      if (!own.name.empty()) own.name = facet.names[at];
      measured = measured || own.line == Line::kMeasured;
    }
    if (measured) panels.push_back(std::move(panel));
  }
  return panels;
}

}  // namespace starling::report
