// SPDX-License-Identifier: Apache-2.0
#include "core/report/several_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/base/counted.h"
#include "core/report/chart_sections.h"
#include "core/report/comparison.h"
#include "core/report/facets.h"
#include "core/report/page.h"
#include "core/report/seed_groups.h"

namespace starling::report {
namespace {

constexpr std::size_t kGraphsMax = 12;

// What a reader wants to know first, as keys end.
constexpr std::array<std::string_view, 16> kTellingKeys = {"algorithm.name",
                                                           "strategy.name",
                                                           "topology.spec",
                                                           "topology.nodes",
                                                           "clients",
                                                           "round.cohort",
                                                           "data.dataset",
                                                           "data.partition",
                                                           "model.kind",
                                                           "steps",
                                                           "rounds",
                                                           "train.local-steps",
                                                           "train.local-epochs",
                                                           "train.batch-size",
                                                           "train.learning-rate",
                                                           "train.optimizer"};

// What one page is about.
struct Study {
  std::span<const Run> runs;  // all of them
  SeedGroups groups;
  std::vector<std::string> names;  // of the groups
  std::vector<Facet> facets;       // of the groups; none: one chart for all

  Runs shown() const { return {groups.means, names, groups.lowest, groups.highest}; }
  // The style of each group's lines.
  std::vector<int> styles() const;
};

std::vector<int> Study::styles() const {
  std::vector<int> styles(groups.means.size());
  for (std::size_t i = 0; i < styles.size(); ++i) styles[i] = static_cast<int>(i);
  for (const Facet& facet : facets) {
    for (std::size_t k = 0; k < facet.runs.size(); ++k) styles[facet.runs[k]] = facet.styles[k];
  }
  return styles;
}

Study make_study(std::span<const Run> runs) {
  Study study{.runs = runs, .groups = make_seed_groups(runs)};
  study.names = distinguishing_names(study.groups.means);
  study.facets = make_facets(study.groups.means, study.names);
  return study;
}

Table as_table(const Comparison& comparison, std::vector<int> styles) {
  Table table;
  for (const ComparisonColumn& column : comparison.columns) {
    std::string title = column.title;
    if (title.ends_with(" %")) title.replace(title.size() - 2, 1, "\u00A0");  // stay together
    table.columns.push_back({std::move(title), column.number});
  }
  table.rows = comparison.rows;
  table.styles = std::move(styles);
  return table;
}

std::string seeds_of(std::span<const Run> runs) {
  std::vector<std::string> seeds;
  for (const Run& run : runs) {
    const std::string seed = run.seed ? fmt::format("{:.0f}", *run.seed) : "none";
    if (std::ranges::find(seeds, seed) == seeds.end()) seeds.push_back(seed);
  }
  std::string text;
  for (const std::string& seed : seeds) text += (text.empty() ? "" : ", ") + seed;
  return text;
}

// The settings with one value in all runs; none where the runs are of both kinds.
std::vector<Fact> shared_settings(std::span<const Run> runs) {
  std::vector<Fact> facts;
  for (const auto& setting : runs.front().settings) {
    const bool everywhere = std::ranges::all_of(runs, [&](const Run& run) {
      return std::ranges::find(run.settings, setting) != run.settings.end();
    });
    if (everywhere) facts.push_back({setting.first, setting.second.empty() ? "–" : setting.second});
  }
  return facts;
}

std::vector<Fact> differing_settings(const Study& study) {
  std::vector<Fact> facts;
  const Differences differing = all_differences(study.groups.means);
  const RunKind kind = study.runs.front().kind;
  const bool mixed =
      std::ranges::any_of(study.runs, [&](const Run& run) { return run.kind != kind; });
  for (std::size_t k = 0; k < differing.keys.size(); ++k) {
    std::vector<std::string> values;
    for (const auto& of_run : differing.values) {
      const std::string none = mixed ? "–" : "not set";  // the other kind has no such setting
      const std::string value = of_run[k].empty() ? none : of_run[k];
      if (std::ranges::find(values, value) == values.end()) values.push_back(value);
    }
    std::string text;
    for (const std::string& value : values) text += (text.empty() ? "" : " · ") + value;
    facts.push_back({differing.keys[k], text});
  }
  if (study.groups.several()) facts.push_back({"seed", seeds_of(study.runs)});
  return facts;
}

void add_settings_on_top(Page& page, const Study& study) {
  const std::vector<Fact> shared = shared_settings(study.runs);
  const std::vector<Fact> differing = differing_settings(study);
  std::vector<Fact> telling;
  for (const std::string_view key : kTellingKeys) {
    const auto found = std::ranges::find(shared, key, &Fact::label);
    if (found != shared.end()) telling.push_back(*found);
  }
  if (telling.empty() && differing.empty()) return;
  page.section("Settings");
  page.begin_grid();
  if (!differing.empty()) {
    page.begin_card("What sets the runs apart");
    page.facts(differing);
    page.end_card();
  }
  if (!telling.empty()) {
    page.begin_card("What all runs share");
    page.facts(telling);
    page.end_card();
  }
  page.end_grid();
  if (shared.empty()) return;
  page.begin_details(fmt::format("All {} that the runs share", counted(shared.size(), "setting")));
  page.facts(shared);
  page.end_details();
}

std::string band_sentence(const Study& study) {
  if (!study.groups.several()) return {};
  return "A line is the mean over the seeds; the band around it reaches from the lowest seed to "
         "the "
         "highest. ";
}

void add_comparison(Page& page, const Study& study) {
  const std::span<const SeedRange> ranges = study.groups.several()
                                                ? std::span<const SeedRange>(study.groups.ranges)
                                                : std::span<const SeedRange>();
  const Comparison comparison = compare(study.groups.means, study.names, ranges);
  std::string introduction;
  if (const std::string mean = mean_of_nodes(study.shown()); !mean.empty()) {
    introduction = fmt::format("Accuracy is the {}. ", mean);
  }
  if (study.groups.several()) {
    introduction +=
        "Of several seeds the table has the mean of what each seed has by itself, at its own end, "
        "at its best and when it first came to the target; and of the final accuracy the lowest "
        "and highest seed in brackets. ";
  }
  if (comparison.target) {
    introduction += fmt::format("{:.0f} % is the highest round number that every run reached.",
                                *comparison.target * 100);
  }
  page.section("Comparison", introduction);
  page.table(as_table(comparison, study.styles()), "comparison");
}

// The names of all panels once; "" where they are too many for one legend.
std::string shared_legend(std::span<const Facet> facets) {
  std::vector<Series> series;
  for (const Facet& facet : facets) {
    for (std::size_t k = 0; k < facet.names.size(); ++k) {
      const auto has = [&](const Series& one) { return one.style == facet.styles[k]; };
      if (std::ranges::none_of(series, has)) {
        series.push_back({.name = facet.names[k], .style = facet.styles[k]});
      }
    }
  }
  if (series.size() > kPanelLinesMax) return "";
  std::ranges::sort(series, {}, &Series::style);
  return legend_of(series);
}

// A chart of many runs as one panel beside the other.
void add_panels(Page& page, const Chart& chart, std::span<const Facet> facets) {
  page.subsection(chart.title);
  const std::string legend = shared_legend(facets);
  page.raw(legend);
  page.begin_panels();
  for (const FacetPanel& panel : make_panels(chart, facets)) {
    page.raw(render_panel(panel.chart, legend.empty()));
  }
  page.end_grid();
  if (!chart.note.empty()) page.paragraph(chart.note);
}

// With panels, the first section is what one looks at; the others are folded away.
void add_several_charts(Page& page, const Study& study) {
  bool first = true;
  for (const ChartSection& section : chart_sections(study.shown())) {
    const bool folded = !study.facets.empty() && !first;
    page.section(section.title, first ? band_sentence(study) : section.introduction);
    if (folded) page.begin_details(counted(section.charts.size(), "chart"));
    if (study.facets.empty()) page.begin_grid();
    for (const Chart& chart : section.charts) {
      if (study.facets.empty()) {
        page.raw(render(chart));
      } else {
        add_panels(page, chart, study.facets);
      }
    }
    if (study.facets.empty()) page.end_grid();
    if (folded) page.end_details();
    first = false;
  }
}

// The graph of each run; one that several share is shown once, under its own name.
void add_graphs(Page& page, const Study& study) {
  struct Graph {
    std::vector<std::string> names;
    const Run* run;
  };
  std::vector<Graph> graphs;
  for (std::size_t i = 0; i < study.names.size(); ++i) {
    const Run& run = study.groups.means[i];
    if (run.topology_svg.empty()) continue;
    const auto same = std::ranges::find_if(
        graphs, [&](const Graph& graph) { return graph.run->topology_svg == run.topology_svg; });
    if (same == graphs.end()) {
      graphs.push_back({{study.names[i]}, &run});
    } else {
      same->names.push_back(study.names[i]);
    }
  }
  if (graphs.empty()) return;
  std::string introduction;
  if (graphs.size() > kGraphsMax) {
    introduction = fmt::format("The first {} of {} graphs.", kGraphsMax, graphs.size());
    graphs.resize(kGraphsMax);
  }
  page.section("Topologies", introduction);
  page.begin_grid();
  for (const Graph& graph : graphs) {
    std::string title;
    for (const std::string& name : graph.names) title += (title.empty() ? "" : "; ") + name;
    if (graph.names.size() > 1 && graph.run->topology) {
      title = fmt::format("{}, of {}", graph.run->topology->name,
                          counted(graph.names.size(), study.groups.several() ? "setting" : "run"));
    }
    page.picture("Graph of " + title, graph.run->topology_svg, "");
  }
  page.end_grid();
}

std::string last_accuracy(const Run& run) {
  const auto accuracy = run.last(Measure::kEvalAccuracy);
  return accuracy ? fmt::format("{:.4f}", *accuracy) : "–";
}

// Every run that the page is about.
void add_runs(Page& page, const Study& study) {
  Table table;
  table.columns = {{"run"}, {"seed", true}, {"final accuracy", true}, {"directory"}};
  for (std::size_t g = 0; g < study.names.size(); ++g) {
    for (const std::size_t i : study.groups.members[g]) {
      const Run& run = study.runs[i];
      table.rows.push_back({study.names[g], run.seed ? fmt::format("{:.0f}", *run.seed) : "–",
                            last_accuracy(run), run.directory.generic_string()});
    }
  }
  page.begin_details(fmt::format("All {}", counted(study.runs.size(), "run")));
  page.table(table, "runs");
  page.end_details();
}

std::string title_of(const Study& study, std::span<const LeftOut> left_out) {
  const std::string count = counted(study.runs.size(), "run");
  if (std::string finished = finished_of(study.runs, left_out); !finished.empty()) return finished;
  const std::size_t groups = study.names.size();
  if (!study.groups.several() || groups == 1) return count + " compared";
  return fmt::format("{} settings compared, {}", groups, count);
}

}  // namespace

void add_left_out(Page& page, std::span<const LeftOut> left_out) {
  std::vector<Fact> facts;
  for (const LeftOut& run : left_out) {
    if (run.reason != kNotBegun) facts.push_back({run.name, run.reason});
  }
  if (facts.empty()) return;
  page.section("Left out", "Runs of the study that have no part in what follows.");
  page.facts(facts);
}

std::string finished_of(std::span<const Run> shown, std::span<const LeftOut> left_out) {
  const auto finished = static_cast<std::size_t>(
      std::ranges::count_if(shown, [](const Run& run) { return !run.unfinished && !run.failed; }));
  const std::size_t all = shown.size() + left_out.size();
  if (finished == all) return "";
  return fmt::format("{} of {} {} finished", finished, counted(all, "run"),
                     finished == 1 ? "has" : "have");
}

void add_not_begun(Page& page, std::span<const LeftOut> left_out) {
  const auto count = std::ranges::count(left_out, std::string_view(kNotBegun), &LeftOut::reason);
  if (count == 0) return;
  page.paragraph(fmt::format("{} of the study {} not begun.",
                             counted(static_cast<std::size_t>(count), "run"),
                             count == 1 ? "has" : "have"));
}

std::string render_several(std::span<const Run> runs, std::span<const LeftOut> left_out) {
  const Study study = make_study(runs);
  Page page(title_of(study, left_out),
            study.facets.empty() ? "Each has its colour and mark throughout"
                                 : "One colour and mark means the same in all panels of a chart");
  add_left_out(page, left_out);
  add_settings_on_top(page, study);
  add_comparison(page, study);
  add_not_begun(page, left_out);
  add_several_charts(page, study);
  add_graphs(page, study);
  page.section("In full");
  add_runs(page, study);
  return page.html(runs.front().program);
}

}  // namespace starling::report
