// SPDX-License-Identifier: Apache-2.0
#include "core/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/check.h"
#include "core/report/chart_sections.h"
#include "core/report/comparison.h"
#include "core/report/page.h"
#include "core/report/several_report.h"

namespace starling::report {
namespace {

constexpr std::size_t kRowsMax = 2000;  // of the table of numbers

std::string said(std::optional<double> value, Quantity quantity = Quantity::kNumber) {
  return value ? format_value(quantity, *value) : "–";
}

std::string percent(double accuracy) { return fmt::format("{:.2f} %", accuracy * 100); }

// As metrics.jsonl has it: the shortest text that reads back as the same number.
std::string exact(double value) {
  if (!std::isfinite(value)) return "–";
  constexpr double kExactIntegers = 9007199254740992;  // 2^53
  if (value == std::floor(value) && std::abs(value) < kExactIntegers) {
    return fmt::format("{:.0f}", value);
  }
  return fmt::format("{}", value);
}

void add_fact(std::vector<Fact>& facts, std::string label, std::optional<double> value,
              Quantity quantity = Quantity::kNumber, std::string detail = "") {
  if (!value) return;
  facts.push_back({std::move(label), format_value(quantity, *value), std::move(detail)});
}

// First what a node has: the mean of all models is no node's.
void add_accuracies(std::vector<Fact>& facts, const Run& run) {
  const auto accuracy = run.last(Measure::kEvalAccuracy);
  if (run.kind == RunKind::kFederated) {
    const auto held_out = run.last(Measure::kHeldOutAccuracy);
    if (accuracy) facts.push_back({"Accuracy", percent(*accuracy)});
    if (held_out) {
      facts.push_back({"Held-out accuracy", percent(*held_out), "by clients, on their own rows"});
    }
    return;
  }
  if (!accuracy) return;
  const auto worst = run.last(Measure::kEvalAccuracyMin);
  const auto best = run.last(Measure::kEvalAccuracyMax);
  facts.push_back({"Accuracy", percent(*accuracy),
                   worst && best
                       ? fmt::format("mean of nodes; {} to {}", percent(*worst), percent(*best))
                       : "mean of nodes"});
  if (const auto mean_model = run.last(Measure::kEvalAccuracyMeanModel)) {
    facts.push_back({"Accuracy of the mean", percent(*mean_model), "a model that no node has"});
  }
}

// As `run.json` has it: "federated-accuracy".
std::string metric_title(const std::string& metric) {
  constexpr std::string_view kByClients = "federated-";
  if (!metric.starts_with(kByClients)) return metric;
  return "held-out " + metric.substr(kByClients.size());
}

std::vector<Fact> headlines(const Run& run) {
  std::vector<Fact> facts;
  const bool gossip = run.kind == RunKind::kGossip;
  add_accuracies(facts, run);
  add_fact(facts, gossip ? "Steps" : "Rounds", run.steps, Quantity::kNumber,
           run.stopped_early.empty() ? "" : "stopped early");
  if (run.best) {
    add_fact(facts, "Best round", run.best->round, Quantity::kNumber,
             fmt::format("{} {}", metric_title(run.best->metric),
                         format_value(Quantity::kNumber, run.best->value)));
  }
  add_fact(facts, run.real_time ? "Time" : "Virtual time", run.virtual_seconds, Quantity::kSeconds);
  if (!run.virtual_seconds) add_fact(facts, "Wall time", run.wall_seconds, Quantity::kSeconds);
  if (run.bytes_sent && run.nodes.value_or(0) > 0) {
    add_fact(facts, "Bytes a node", *run.bytes_sent / *run.nodes, Quantity::kBytes,
             said(run.bytes_sent, Quantity::kBytes) + " in all");
  } else {
    add_fact(facts, "Bytes", run.bytes_sent, Quantity::kBytes, gossip ? "" : "both ways");
  }
  if (run.topology) add_fact(facts, "Spectral gap", run.topology->spectral_gap);
  if (run.node_steps_per_second) {
    facts.push_back({"Speed", format_count(*run.node_steps_per_second), "node-steps a second"});
  }
  return facts;
}

std::vector<Fact> topology_facts(const Run& run) {
  std::vector<Fact> facts;
  if (!run.topology) return facts;
  const TopologyFacts& topology = *run.topology;
  const auto yes = [&](std::string label, std::optional<bool> value) {
    if (value) facts.push_back({std::move(label), *value ? "yes" : "no"});
  };
  if (!topology.name.empty()) facts.push_back({"Topology", topology.name});
  add_fact(facts, "Nodes", topology.nodes ? topology.nodes : run.nodes);
  add_fact(facts, "Edges", topology.edges);
  if (topology.degree_mean) {
    const bool regular = topology.degree_min == topology.degree_max;
    facts.push_back({"Degree", said(topology.degree_mean),
                     regular ? "every node"
                             : fmt::format("mean; {} to {}", said(topology.degree_min),
                                           said(topology.degree_max))});
  }
  yes("Directed", topology.directed);
  yes("Time-varying", topology.time_varying);
  if (topology.period && *topology.period > 1) add_fact(facts, "Period", topology.period);
  add_fact(facts, "Diameter", topology.diameter);
  yes("Connected", topology.connected);
  add_fact(facts, "Second largest eigenvalue modulus λ", topology.slem);
  add_fact(facts, "Spectral gap 1 − λ", topology.spectral_gap);
  add_fact(facts, "Mixings to consensus", topology.rounds_to_consensus);
  return facts;
}

void add_topology(Page& page, const Run& run) {
  const std::vector<Fact> facts = topology_facts(run);
  if (facts.empty() && run.topology_svg.empty()) return;
  page.section("Topology");
  page.begin_grid();
  if (!run.topology_svg.empty()) page.picture("Graph", run.topology_svg, "");
  if (!facts.empty()) page.facts(facts);
  page.end_grid();
}

void add_charts(Page& page, const Runs& runs) {
  for (const ChartSection& section : chart_sections(runs)) {
    page.section(section.title, section.introduction);
    page.begin_grid();
    for (const Chart& chart : section.charts) page.raw(render(chart));
    page.end_grid();
  }
}

// Of a gossip run as metrics.jsonl calls it.
std::string column_title(const Run& run, Measure measure) {
  const MeasureInfo& info = kMeasures[static_cast<std::size_t>(measure)];
  if (run.kind == RunKind::kGossip) return std::string(info.key);
  if (measure == Measure::kStep) return "round";
  return std::string(info.title) + (info.quantity == Quantity::kSeconds ? " (s)" : "");
}

// Every evaluation in full; of very many each k-th and the last.
void add_numbers(Page& page, const Run& run) {
  std::vector<Measure> shown;
  Table table;
  for (std::size_t i = 0; i < kMeasures.size(); ++i) {
    const auto measure = static_cast<Measure>(i);
    if (!run.has(measure)) continue;
    shown.push_back(measure);
    table.columns.push_back({column_title(run, measure), true});
  }
  const std::vector<MetricKey> metrics = run.metrics();
  for (const MetricKey& metric : metrics) table.columns.push_back({metric.title(), true});
  const std::size_t count = run.evaluations.size();
  const std::size_t every = (count + kRowsMax - 1) / kRowsMax;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % every != 0 && i + 1 != count) continue;
    std::vector<std::string>& cells = table.rows.emplace_back();
    for (const Measure measure : shown) cells.push_back(exact(run.evaluations[i].at(measure)));
    for (const MetricKey& metric : metrics) cells.push_back(exact(run.evaluations[i].at(metric)));
  }
  page.begin_details(fmt::format("Numbers ({} evaluations)", count));
  if (every > 1) {
    page.paragraph(fmt::format("One in {} of {} evaluations, and the last; {} has all.", every,
                               format_count(static_cast<double>(count)),
                               run.kind == RunKind::kGossip ? "metrics.jsonl" : "run.json"));
  }
  if (!table.rows.empty()) page.table(table, "numbers");
  page.end_details();
}

std::vector<Fact> as_facts(const std::vector<std::pair<std::string, std::string>>& settings) {
  std::vector<Fact> facts;
  for (const auto& [key, value] : settings) facts.push_back({key, value.empty() ? "–" : value});
  return facts;
}

void add_settings(Page& page, const Run& run, const std::string& title) {
  if (run.settings.empty()) return;
  page.begin_details(title);
  page.facts(as_facts(run.settings));
  page.end_details();
}

std::string footer(const Run& run) {
  std::string text = run.program;
  if (run.seed) text += fmt::format(" · seed {:.0f}", *run.seed);
  if (run.parameters) text += fmt::format(" · {} parameters", format_count(*run.parameters));
  if (run.wall_seconds) {
    text += fmt::format(" · took {}", format_value(Quantity::kSeconds, *run.wall_seconds));
  }
  if (!run.trace_sha256.empty()) text += " · trace SHA-256 " + run.trace_sha256;
  return text;
}

std::string failed_note(const Run& run) {
  return fmt::format("Failed{}. This is what was measured until {} {}.",
                     run.failure.empty() ? "" : ": " + run.failure,
                     run.kind == RunKind::kFederated ? "round" : "step", said(run.steps));
}

std::string unfinished_note(const Run& run) {
  const bool federated = run.kind == RunKind::kFederated;
  std::string asked = run.setting(federated ? "rounds" : "steps").value_or("");
  double count = 0;
  const auto read = std::from_chars(asked.data(), asked.data() + asked.size(), count);
  if (read.ec == std::errc()) asked = format_count(count);  // as the step beside it
  return fmt::format(
      "Unfinished: this is what was measured until {} {}{}. The command that began "
      "it {}.",
      federated ? "round" : "step", said(run.steps), asked.empty() ? "" : " of " + asked,
      run.has_checkpoint ? "goes on from its last checkpoint" : "begins it again");
}

std::string title_of(const Run& run, const std::string& name) {
  if (run.kind == RunKind::kFederated || run.algorithm.empty()) return name;
  const std::string where =
      run.topology && !run.topology->name.empty() ? fmt::format(" on {}", run.topology->name) : "";
  return run.algorithm + where;
}

std::string subtitle_of(const Run& run) {
  std::string text = run.kind == RunKind::kGossip ? "Gossip run" : "Federated run";
  const auto add = [&](const std::string& more) { text += " · " + more; };
  if (run.nodes) add(format_count(*run.nodes) + " nodes");
  if (run.failed) {
    add("failed");
  } else if (run.unfinished) {
    add("unfinished");
  } else if (!run.incomplete.empty()) {
    add("incomplete");
  }
  if (!run.state.empty() && !run.failed) add(run.state);
  for (const char* key : {"dataset", "partition"}) {
    const auto value = run.setting(std::string("data.") + key);
    if (value && !value->empty()) add(*value);
  }
  if (run.seed) add(fmt::format("seed {:.0f}", *run.seed));
  return text;
}

std::string render_one(const Run& run, const std::string& name, std::span<const LeftOut> left_out) {
  // Of one that stands for a study, first how much that is of it; its directory says which it is.
  Page page = left_out.empty()
                  ? Page(title_of(run, name), subtitle_of(run))
                  : Page(finished_of({&run, 1}, left_out),
                         fmt::format("{} · {} · {}", title_of(run, name), subtitle_of(run),
                                     (run.directory / "").parent_path().filename().string()));
  page.headlines(headlines(run));
  if (run.failed) {
    page.paragraph(failed_note(run));
  } else if (run.unfinished) {
    page.paragraph(unfinished_note(run));
  } else if (!run.incomplete.empty()) {
    page.paragraph("Incomplete: " + run.incomplete + ".");
  }
  add_not_begun(page, left_out);
  add_left_out(page, left_out);
  if (!run.stopped_early.empty()) page.paragraph("Stopped early: " + run.stopped_early + ".");
  add_charts(page, {{&run, 1}, {&name, 1}});
  add_topology(page, run);
  page.section("In full");
  add_settings(page, run, "Settings");
  add_numbers(page, run);
  return page.html(footer(run));
}

}  // namespace

std::string render_report(std::span<const Run> runs, std::span<const LeftOut> left_out) {
  STARLING_CHECK(!runs.empty());
  if (runs.size() > 1) return render_several(runs, left_out);
  return render_one(runs.front(), distinguishing_names(runs).front(), left_out);
}

}  // namespace starling::report
