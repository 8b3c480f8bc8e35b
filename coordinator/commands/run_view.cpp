// SPDX-License-Identifier: Apache-2.0
#include "coordinator/commands/run_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <set>

#include "coordinator/commands/text_table.h"
#include "coordinator/job/job_text.h"
#include "core/base/escape_controls.h"
#include "core/telemetry/terminal_chart.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

constexpr std::size_t kFailuresShown = 20;
constexpr std::size_t kWarningsShown = 10;
constexpr std::size_t kAbandonedShown = 10;
constexpr std::size_t kLeftOutShown = 10;
constexpr std::size_t kMetricsShown = 6;  // names

const json::array& array_of(const json::value& object, std::string_view key) {
  static const json::array kNone;
  const json::object* members = object.if_object();
  const json::value* value = members ? members->if_contains({key.data(), key.size()}) : nullptr;
  return value && value->is_array() ? value->get_array() : kNone;
}

std::string error_of(const json::value& run) {
  const json::object* members = run.if_object();
  const json::value* error = members ? members->if_contains("error") : nullptr;
  return error && error->is_object() ? cell(*error, "message") : std::string();
}

// Who can do the run, of one that is under way.
std::string clients_of(const json::value& run) {
  const json::object* members = run.if_object();
  const json::value* clients = members ? members->if_contains("clients") : nullptr;
  if (clients == nullptr || !clients->is_object()) return {};
  std::string text =
      fmt::format("clients    {} admitted, {} connected; {} can do this run\n",
                  cell(*clients, "admitted"), cell(*clients, "connected"), cell(*clients, "able"));
  const json::array& left_out = array_of(*clients, "left_out");
  for (std::size_t i = 0; i < std::min(left_out.size(), kLeftOutShown); ++i) {
    text += fmt::format("left out   {}: {}\n", cell(left_out[i], "client"),
                        cell(left_out[i], "reason"));
  }
  if (left_out.size() > kLeftOutShown) {
    text += fmt::format("           and {} more; --format json has all\n",
                        left_out.size() - kLeftOutShown);
  }
  return text;
}

// Those that tell this run from another; JSON has all.
std::string settings_of(const json::value& run) {
  const json::object* members = run.if_object();
  const json::value* object = members ? members->if_contains("settings") : nullptr;
  if (object == nullptr || !object->is_object()) return {};
  Settings settings;
  for (const auto& [key, value] : object->get_object()) {
    if (value.is_string()) settings.emplace_back(key, value.get_string());
  }
  // Without the shape of the data until the clients have said it.
  const Settings telling = telling_settings(settings);
  if (telling.empty()) return {};
  std::string text = "\nsettings that are not the defaults, and the shape of the data\n";
  for (const auto& [key, value] : telling) {
    text += fmt::format("{} = {}\n", escape_controls(key), escape_controls(value));
  }
  return text;
}

std::string best_of(const json::value& run) {
  const json::object* members = run.if_object();
  const json::value* best = members ? members->if_contains("best_round") : nullptr;
  if (best == nullptr || !best->is_object()) return {};
  return fmt::format("best       round {} ({} {})\n", cell(*best, "round"), cell(*best, "metric"),
                     cell(*best, "value", 4));
}

std::string head(const json::value& run) {
  std::string text =
      fmt::format("run {} '{}': {}\n", cell(run, "id"), cell(run, "name"), cell(run, "state"));
  const std::string error = error_of(run);
  if (!error.empty()) text += fmt::format("error      {}\n", error);
  const std::string waits_for = cell(run, "waits_for");
  if (waits_for != "-") text += fmt::format("waits for  {}\n", waits_for);
  const std::string abandoned = cell(run, "last_abandoned");
  if (abandoned != "-") text += fmt::format("abandoned  {}\n", abandoned);
  const std::string stopped_early = cell(run, "stopped_early");
  if (stopped_early != "-") text += fmt::format("early stop {}\n", stopped_early);
  text += clients_of(run);
  return text + best_of(run) +
         fmt::format("seed       {}\nsubmitted  {}\nstarted    {}\nended      {}\n",
                     cell(run, "seed"), time_cell(run, "submitted"), time_cell(run, "started"),
                     time_cell(run, "ended"));
}

std::string seconds_cell(const json::value& round, const char* key) {
  const json::object* members = round.if_object();
  const json::value* seconds = members ? members->if_contains(key) : nullptr;
  if (seconds == nullptr || !seconds->is_number()) return "-";
  const auto value = seconds->to_number<double>();
  return fmt::format("{:.{}f} s", value, value < 10 ? 2 : 1);
}

// Narrow enough for a terminal of 80 columns.
std::string rounds_table(const json::array& rounds, const telemetry::Terminal& terminal) {
  TextTable table({">ROUND", ">ATTEMPT", "STATE", ">UPDATES", ">TRAIN LOSS", ">EVAL LOSS",
                   ">ACCURACY", ">TIME", ">IN", ">OUT"});
  for (const json::value& round : rounds) {
    table.add({cell(round, "round"), cell(round, "attempt"), cell(round, "state"),
               fmt::format("{}/{}", cell(round, "updates"), cell(round, "cohort")),
               cell(round, "train_loss", 4), cell(round, "eval_loss", 4),
               cell(round, "eval_accuracy", 4), seconds_cell(round, "seconds"),
               bytes_cell(round, "bytes_in"), bytes_cell(round, "bytes_out")});
  }
  return table.text(terminal.line_max);
}

// The reasons of rounds that were abandoned and of evaluations by clients, the last ones.
std::string abandoned_rounds(const json::array& rounds) {
  std::vector<std::string> lines;
  for (const json::value& round : rounds) {
    const auto add = [&](const char* key, const std::string& what) {
      const json::object* members = round.if_object();
      const json::value* abandoned = members ? members->if_contains(key) : nullptr;
      if (!abandoned || !abandoned->is_object()) return;
      lines.push_back(fmt::format("round {}, {}: abandoned: {}\n", cell(round, "round"), what,
                                  cell(*abandoned, "reason")));
    };
    add("abandoned", "attempt " + cell(round, "attempt"));
    add("federated_abandoned", "evaluation by clients");
  }
  if (lines.empty()) return {};
  std::string text = "\n";
  const std::size_t left_out = lines.size() - std::min(lines.size(), kAbandonedShown);
  if (left_out > 0) text += fmt::format("{} earlier ones; --format json has all\n", left_out);
  for (std::size_t i = left_out; i < lines.size(); ++i) text += lines[i];
  return text;
}

// What the clients found on their own data, where they were asked.
std::string evaluations_table(const json::array& rounds, const telemetry::Terminal& terminal) {
  TextTable table(
      {">ROUND", "STATE", ">CLIENTS", ">WEIGHT", ">LOSS", ">ACCURACY", ">TIME", ">OUT"});
  bool any = false;
  for (const json::value& round : rounds) {
    if (cell(round, "federated_state") == "-") continue;
    any = true;
    table.add(
        {cell(round, "round"), cell(round, "federated_state"),
         fmt::format("{}/{}", cell(round, "federated_clients"), cell(round, "federated_asked")),
         cell(round, "federated_weight"), cell(round, "federated_loss", 4),
         cell(round, "federated_accuracy", 4), seconds_cell(round, "federated_seconds"),
         bytes_cell(round, "federated_bytes_out")});
  }
  if (!any) return {};
  return "\nevaluated by the clients, on their own data\n" + table.text(terminal.line_max);
}

// `key`: "train_metrics", "eval_metrics" or "federated_metrics": a column for each name that some
// round has.
std::string metrics_table(const json::array& rounds, std::string_view key, std::string_view title,
                          const telemetry::Terminal& terminal) {
  std::set<std::string> names;
  const auto metrics_of = [key](const json::value& round) -> const json::value* {
    const json::object* members = round.if_object();
    const json::value* metrics =
        members ? members->if_contains(json::string_view(key.data(), key.size())) : nullptr;
    return metrics && metrics->is_object() ? metrics : nullptr;
  };
  for (const json::value& round : rounds) {
    if (const json::value* metrics = metrics_of(round)) {
      for (const auto& metric : metrics->get_object()) names.emplace(metric.key());
    }
  }
  if (names.empty()) return {};
  const std::size_t left_out = names.size() - std::min(names.size(), kMetricsShown);
  while (names.size() > kMetricsShown) names.erase(std::prev(names.end()));
  std::vector<std::string> headers = {">ROUND"};
  for (const std::string& name : names) headers.push_back(">" + escape_controls(name));
  TextTable table(std::move(headers));
  for (const json::value& round : rounds) {
    const json::value* metrics = metrics_of(round);
    if (metrics == nullptr) continue;
    std::vector<std::string> cells = {cell(round, "round")};
    for (const std::string& name : names) cells.push_back(cell(*metrics, name, 4));
    table.add(std::move(cells));
  }
  std::string text = fmt::format("\n{}\n{}", title, table.text(terminal.line_max));
  if (left_out > 0) text += fmt::format("and {} more; --format json has all\n", left_out);
  return text;
}

// `key`: "failures" of each attempt at a training, or "federated_failures" of the last evaluation
// by clients.
std::string failures_table(const json::array& rounds, std::string_view key, std::string_view title,
                           const telemetry::Terminal& terminal) {
  const bool by_attempt = key == "failures";
  std::vector<std::string> headers = {">ROUND"};
  if (by_attempt) headers.emplace_back(">ATTEMPT");
  headers.insert(headers.end(), {"CLIENT", "CODE", "REASON"});
  TextTable table(std::move(headers));
  std::size_t count = 0;
  for (const json::value& round : rounds) {
    for (const json::value& failure : array_of(round, key)) {
      if (++count > kFailuresShown) continue;
      std::vector<std::string> cells = {cell(round, "round")};
      if (by_attempt) cells.push_back(cell(round, "attempt"));
      for (const char* fact : {"client", "code", "reason"}) cells.push_back(cell(failure, fact));
      table.add(std::move(cells));
    }
  }
  if (count == 0) return {};
  std::string text = fmt::format("\n{}\n{}", title, table.text(terminal.line_max));
  if (count > kFailuresShown) {
    text += fmt::format("and {} more; --format json has all\n", count - kFailuresShown);
  }
  return text;
}

std::string round_warnings(const json::array& rounds) {
  std::string text;
  std::size_t count = 0;
  for (const json::value& round : rounds) {
    for (const json::value& warning : array_of(round, "warnings")) {
      if (!warning.is_string() || ++count > kWarningsShown) continue;
      text += fmt::format("warning: round {}: {}\n", cell(round, "round"),
                          escape_controls(std::string_view(warning.get_string())));
    }
  }
  if (count == 0) return {};
  if (count > kWarningsShown) {
    text += fmt::format("and {} more warnings; --format json has all\n", count - kWarningsShown);
  }
  return "\n" + text;
}

std::string accuracy_curve(const json::array& rounds, const telemetry::Terminal& terminal) {
  std::vector<double> values;
  std::size_t evaluated = 0;
  for (const json::value& round : rounds) {
    if (cell(round, "state") != "committed") continue;
    const json::value* accuracy = round.get_object().if_contains("eval_accuracy");
    const bool known = accuracy != nullptr && accuracy->is_number();
    evaluated += known ? 1 : 0;
    values.push_back(known ? accuracy->to_number<double>()
                           : std::numeric_limits<double>::quiet_NaN());
  }
  if (evaluated < 2) return {};
  return "\n" + telemetry::line_chart(values, terminal, {.title = "accuracy", .x_label = "round"});
}

}  // namespace

std::string describe_runs(const json::value& runs, const telemetry::Terminal& terminal) {
  if (!runs.is_array() || runs.get_array().empty()) {
    return "no runs; submit one with 'starling-coordinator run submit JOB.toml'\n";
  }
  TextTable table({">ID", "NAME", "STATE", ">SEED", ">ROUNDS", "SUBMITTED", "ENDED"});
  std::string waiting;
  for (const json::value& run : runs.get_array()) {
    table.add({cell(run, "id"), cell(run, "name"), cell(run, "state"), cell(run, "seed"),
               cell(run, "rounds_committed"), time_cell(run, "submitted"),
               time_cell(run, "ended")});
    const std::string waits_for = cell(run, "waits_for");
    if (waits_for != "-")
      waiting += fmt::format("run {} waits for {}\n", cell(run, "id"), waits_for);
    const std::string abandoned = cell(run, "last_abandoned");
    if (abandoned != "-") waiting += fmt::format("run {}: {}\n", cell(run, "id"), abandoned);
  }
  return table.text(terminal.line_max) + waiting;
}

std::string describe_run(const json::value& run, const telemetry::Terminal& terminal) {
  const json::array& rounds = array_of(run, "rounds");
  const std::string top = head(run) + settings_of(run);
  if (rounds.empty()) return top + "no round yet\n";
  return top + "\n" + rounds_table(rounds, terminal) + round_warnings(rounds) +
         abandoned_rounds(rounds) +
         failures_table(rounds, "failures", "who did not count, and why", terminal) +
         metrics_table(rounds, "train_metrics", "metrics of the clients' training", terminal) +
         metrics_table(rounds, "eval_metrics", "metrics of the coordinator's evaluations",
                       terminal) +
         evaluations_table(rounds, terminal) +
         metrics_table(rounds, "federated_metrics", "metrics of the clients' evaluations",
                       terminal) +
         failures_table(rounds, "federated_failures", "who did not evaluate, and why", terminal) +
         accuracy_curve(rounds, terminal);
}

std::string describe_end(const json::value& run) {
  const std::string error = error_of(run);
  return fmt::format("run {} {}{}\n", cell(run, "id"), cell(run, "state"),
                     error.empty() ? "" : ": " + error);
}

}  // namespace starling::coordinator
