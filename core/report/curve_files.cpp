// SPDX-License-Identifier: Apache-2.0
#include "core/report/curve_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/report/chart_sections.h"
#include "core/report/comparison.h"
#include "core/report/facets.h"
#include "core/report/seed_groups.h"

namespace starling::report {
namespace {

// "accuracy of the worst node" as "accuracy-of-the-worst-node"; up to the first comma.
std::string slug(std::string_view title, char between) {
  std::string text;
  for (const char c : title.substr(0, title.find(','))) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool plain = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (plain) {
      text += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!text.empty() && text.back() != between) {
      text += between;
    }
  }
  while (!text.empty() && text.back() == between) text.pop_back();
  return text.empty() ? "chart" : text;
}

std::string stem_of(const Chart& chart) {
  return slug(chart.title, '-') + "-by-" + slug(chart.x.title, '-');
}

std::string column_name(const Axis& axis) {
  std::string name = slug(axis.title, '_');
  const char* unit = axis.quantity == Quantity::kSeconds ? "seconds"
                     : axis.quantity == Quantity::kBytes ? "bytes"
                                                         : "";
  if (*unit != 0 && name.find(unit) == name.npos) name += fmt::format("_{}", unit);
  return name;
}

// RFC 4180.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? std::string("\"\"") : std::string(1, c);
  return cell + '"';
}

std::string csv_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : std::string();
}

// The runs as a page shows them.
struct Shown {
  explicit Shown(std::span<const Run> all) : groups(make_seed_groups(all)) {
    names = distinguishing_names(groups.means);
    differing = differences(groups.means);
    if (differing.keys.empty()) differing = all_differences(groups.means);
    sections = chart_sections({groups.means, names, groups.lowest, groups.highest});
  }

  SeedGroups groups;
  std::vector<std::string> names;
  Differences differing;
  std::vector<ChartSection> sections;
};

std::string header_of(const Shown& shown, const Chart& chart) {
  std::string header = "curve";
  for (const std::string& key : shown.differing.keys) header += "," + csv_cell(key);
  header += fmt::format(",{},{}", column_name(chart.x), column_name(chart.y));
  return header + (shown.groups.several() ? ",lowest,highest,seeds\n" : "\n");
}

// Of several runs the style of a series is its run's index; of one it counts the curves.
std::string rows_of(const Shown& shown, const Series& series) {
  const std::size_t run =
      shown.groups.means.size() > 1 ? static_cast<std::size_t>(series.style) : 0;
  std::string front = csv_cell(series.name.empty() ? shown.names[run] : series.name);
  for (const std::string& value :
       shown.differing.keys.empty() ? std::vector<std::string>() : shown.differing.values[run]) {
    front += "," + csv_cell(value);
  }
  std::string rows;
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    rows += fmt::format("{},{},{}", front, csv_number(series.x[i]), csv_number(series.y[i]));
    if (shown.groups.several()) {
      const bool band = !series.lower.empty();
      rows +=
          fmt::format(",{},{},{}", band ? csv_number(series.lower[i]) : "",
                      band ? csv_number(series.upper[i]) : "", shown.groups.members[run].size());
    }
    rows += '\n';
  }
  return rows;
}

// A name for each file, all different.
class Names {
 public:
  std::string next(const std::string& stem, const char* extension) {
    const int number = ++seen_[stem];
    return number == 1 ? stem + extension : fmt::format("{}-{}{}", stem, number, extension);
  }

 private:
  std::map<std::string, int> seen_;
};

}  // namespace

std::vector<CurveFile> curves_as_csv(std::span<const Run> runs) {
  const Shown shown(runs);
  std::vector<CurveFile> files;
  Names names;
  for (const ChartSection& section : shown.sections) {
    for (const Chart& chart : section.charts) {
      std::string text = header_of(shown, chart);
      for (const Series& series : chart.series) {
        // What theory says of a run among several follows from its row in the table.
        if (series.line == Line::kPredicted && series.name.empty()) continue;
        text += rows_of(shown, series);
      }
      files.push_back({names.next(stem_of(chart), ".csv"), std::move(text)});
    }
  }
  return files;
}

std::vector<CurveFile> curves_as_svg(std::span<const Run> runs) {
  const Shown shown(runs);
  const std::vector<Facet> facets = make_facets(shown.groups.means, shown.names);
  std::vector<CurveFile> files;
  Names names;
  for (const ChartSection& section : shown.sections) {
    for (const Chart& chart : section.charts) {
      if (!shows_something(chart)) continue;
      if (facets.empty()) {
        files.push_back({names.next(stem_of(chart), ".svg"), standalone_svg(chart)});
        continue;
      }
      for (FacetPanel& panel : make_panels(chart, facets)) {
        if (!shows_something(panel.chart)) continue;
        const std::string stem = stem_of(chart) + "-" + fmt::format("panel-{}", panel.facet + 1);
        panel.chart.title = chart.title + " (" + panel.chart.title + ")";
        files.push_back({names.next(stem, ".svg"), standalone_svg(panel.chart)});
      }
    }
  }
  return files;
}

}  // namespace starling::report
