// SPDX-License-Identifier: Apache-2.0
#include "core/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace starling::report {
namespace {

constexpr std::string_view kNoValue = "–";
constexpr std::ptrdiff_t kDifferencesMax = 3;  // beyond these a name is a sentence
constexpr std::string_view kRunsAs = "runs as";

using SettingTexts = std::vector<std::pair<std::string, std::string>>;

std::string_view last_word(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// Settings that say where a run was held, not what it was.
bool is_incidental(std::string_view key) {
  const std::string_view word = last_word(key);
  return word == "out" || word == "threads" || word == "format" || word == "config";
}

// Settings that only a launched network has: that a simulated one lacks them is no difference.
bool is_of_launch(std::string_view key) {
  return key.starts_with("launch.") || key.starts_with("chaos.");
}

// Keys whose value alone says what it is; they come first in a name.
int rank(std::string_view key) {
  if (key == "algorithm" || key == "algorithm.name" || key == "strategy.name") return 0;
  if (key == "topology" || key == "topology.spec") return 1;
  if (last_word(key) == "partition" || key == kRunsAs) return 2;
  if (last_word(key) == "nodes") return 3;
  return last_word(key) == "seed" ? 5 : 4;
}

// Whether the last word of `key` is that of another one too: "algorithm.momentum",
// "train.momentum".
bool shares_word(std::string_view key, std::span<const std::string> keys) {
  return std::ranges::count(keys, last_word(key), last_word) > 1;
}

std::string said(std::string_view key, const std::string& value, bool whole_key) {
  std::string text = value.empty() ? "none" : value;
  if (rank(key) < 3) return text;
  if (key == "nodes" || key == "topology.nodes") return text + " nodes";
  if (key == "clients") return text + " clients";
  return fmt::format("{} {}", whole_key ? key : last_word(key), text);
}

std::string column_title(std::string_view key) {
  const std::string_view word = last_word(key);
  const bool says_nothing = word == "name" || word == "spec";
  return std::string(says_nothing && word != key ? key.substr(0, key.rfind('.')) : word);
}

// With what a network of nodes was, which its command decides rather than a setting.
SettingTexts told_of(const Run& run) {
  SettingTexts told = run.told();
  if (run.kind != RunKind::kGossip) return told;
  const auto peers = std::ranges::find(told, "real-protocol", &SettingTexts::value_type::first);
  const char* simulated = peers == told.end() ? "simulated" : "simulated peers";
  if (peers != told.end()) told.erase(peers);
  told.emplace_back(kRunsAs, run.real_time ? "real processes" : simulated);
  return told;
}

// The keys whose values differ among the runs of a kind, most telling first; of jobs with names of
// their own, which are told apart by these, only where asked for.
std::vector<std::string> differing_keys(std::span<const Run> runs, RunKind kind,
                                        bool also_named = false) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, std::size_t> holders;
  std::vector<std::string> order;
  std::size_t count = 0;
  for (const Run& run : runs) {
    if (run.kind != kind) continue;
    ++count;
    for (const auto& [key, value] : told_of(run)) {
      if (is_incidental(key)) continue;
      if (holders[key]++ == 0) order.push_back(key);
      values[key].insert(value);
    }
  }
  if (!also_named && kind == RunKind::kFederated && values["name"].size() > 1) return {};
  std::erase_if(order, [&](const std::string& key) {
    return values[key].size() < 2 && (holders[key] == count || is_of_launch(key));
  });
  std::ranges::stable_sort(order, {}, rank);
  return order;
}

// "none" is a value of evaluate.dataset, and not what a simulation does where it is empty.
std::string value_said(std::string_view key, const std::string& value) {
  if (!value.empty()) return value;
  return key == "evaluate.dataset" ? "not set" : "none";
}

std::vector<std::string> values_of(const Run& run, std::span<const std::string> keys) {
  const SettingTexts told = told_of(run);
  std::vector<std::string> values;
  for (const std::string& key : keys) {
    const auto found = std::ranges::find(told, key, &SettingTexts::value_type::first);
    values.push_back(found == told.end() ? "" : value_said(key, found->second));
  }
  return values;
}

// Where the path in a value begins: behind "csv:".
std::size_t path_at(std::string_view value) {
  const std::size_t colon = value.find(':');
  return colon < value.find('/') ? colon + 1 : 0;
}

// Of values with paths the directory that all paths share, with its '/'; of one alone none, which
// may be no path: "1Gbit/s".
std::string common_directory(const std::set<std::string>& values) {
  std::string common;
  std::size_t paths = 0;
  for (const std::string& value : values) {
    if (value.find('/') == value.npos) continue;
    const std::string path = value.substr(path_at(value));
    if (++paths == 1) common = path;
    const auto [end, ignored] = std::ranges::mismatch(common, path);
    common.erase(end, common.end());
    common.erase(common.rfind('/') + 1);
  }
  return paths > 1 ? common : "";
}

std::string without_directory(const std::string& value, const std::string& directory) {
  const std::size_t at = path_at(value);
  if (value.compare(at, directory.size(), directory) != 0) return value;
  return value.substr(0, at) + value.substr(at + directory.size());
}

// The values of each run, without the directory that all paths of a setting share: with it a name
// is too long for a table and for a legend.
std::vector<std::vector<std::string>> short_values(std::span<const Run> runs,
                                                   std::span<const std::string> keys) {
  std::vector<std::vector<std::string>> values;
  for (const Run& run : runs) values.push_back(values_of(run, keys));
  for (std::size_t k = 0; k < keys.size(); ++k) {
    std::set<std::string> all;
    for (const auto& of_run : values) all.insert(of_run[k]);
    const std::string directory = common_directory(all);
    std::set<std::string> distinct;
    for (const std::string& value : all) distinct.insert(without_directory(value, directory));
    if (distinct.size() < all.size()) continue;
    for (auto& of_run : values) of_run[k] = without_directory(of_run[k], directory);
  }
  return values;
}

// How many of the runs of a kind these keys tell apart.
std::size_t count_distinct(std::span<const Run> runs, RunKind kind,
                           std::span<const std::string> keys) {
  std::set<std::vector<std::string>> distinct;
  for (const Run& run : runs) {
    if (run.kind == kind) distinct.insert(values_of(run, keys));
  }
  return distinct.size();
}

// The most telling keys that differ among the runs of a kind. Where they tell too few apart, those
// others that tell more apart too.
std::vector<std::string> naming_keys(std::span<const Run> runs, RunKind kind) {
  const std::vector<std::string> all = differing_keys(runs, kind);
  std::vector<std::string> keys(all.begin(),
                                all.begin() + std::min(std::ssize(all), kDifferencesMax));
  for (const std::string& key : std::span(all).subspan(keys.size())) {
    const std::size_t before = count_distinct(runs, kind, keys);
    keys.push_back(key);
    if (count_distinct(runs, kind, keys) == before) keys.pop_back();
  }
  return keys;
}

std::string directory_name(const Run& run) {
  const std::filesystem::path path = run.directory.lexically_normal();
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  return name.empty() ? "run" : name;
}

std::string own_name(const Run& run) { return run.name.empty() ? directory_name(run) : run.name; }

void tell_apart(std::span<const Run> runs, std::vector<std::string>& names) {
  const auto repeated = [&names](const std::string& name) {
    return std::ranges::count(names, name) > 1;
  };
  std::vector<std::string> better = names;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (repeated(names[i])) better[i] += fmt::format(" ({})", directory_name(runs[i]));
  }
  names = better;
  std::map<std::string, int> seen;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const int number = ++seen[better[i]];
    if (number > 1) names[i] += fmt::format(" #{}", number);
  }
}

std::string number_cell(std::optional<double> value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : std::string(kNoValue);
}

std::string value_cell(Quantity quantity, std::optional<double> value) {
  return value ? format_value(quantity, *value) : std::string(kNoValue);
}

std::string steps_word(std::span<const Run> runs) {
  const auto federated = std::ranges::count(runs, RunKind::kFederated, &Run::kind);
  if (federated == 0) return "steps";
  return federated == std::ssize(runs) ? "rounds" : "steps or rounds";
}

double shared_bytes(const Run& run, double bytes, bool by_node) {
  return by_node ? bytes / *run.nodes : bytes;
}

std::optional<double> lower(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

std::optional<double> target_below(std::optional<double> lowest) {
  if (!lowest || *lowest < 0.01) return std::nullopt;
  // Percents are whole numbers here: 0.85 as a double is not 17 * 0.05.
  const double percents = std::floor(*lowest * 100 + 1e-9);
  return (percents < 5 ? percents : std::floor(percents / 5) * 5) / 100;
}

// Of the seeds' own values; none where a seed has none.
std::optional<double> mean_over(const SeedRange& range, auto&& value_of) {
  double sum = 0;
  for (const Run* run : range.seeds) {
    const std::optional<double> value = value_of(*run);
    if (!value) return std::nullopt;
    sum += *value;
  }
  if (range.seeds.empty()) return std::nullopt;
  return sum / static_cast<double>(range.seeds.size());
}

std::optional<double> mean_last(const SeedRange& range, Measure measure) {
  return mean_over(range, [measure](const Run& run) { return run.last(measure); });
}

// "0.8123 (0.8101 to 0.8150)"
std::string accuracy_cell(const SeedRange& range) {
  if (range.seeds.size() < 2 || !range.mean) return number_cell(range.mean, 4);
  return fmt::format("{:.4f} ({:.4f} to {:.4f})", *range.mean, *range.lowest, *range.highest);
}

// Which time it is, where the runs have both.
std::string time_cell(const Run& run, double seconds, bool of_both) {
  std::string time = format_value(Quantity::kSeconds, seconds);
  if (of_both && std::isfinite(seconds)) time += run.real_time ? " wall" : " virtual";
  return time;
}

// `run`: the mean of the seeds.
std::vector<std::string> row(const Run& run, const std::string& name, const Comparison& comparison,
                             bool by_node, bool of_both_times, bool several,
                             const SeedRange& range) {
  std::vector<std::string> cells = {name};
  if (several) cells.push_back(fmt::format("{}", range.seeds.size()));
  cells.push_back(accuracy_cell(range));
  cells.push_back(number_cell(mean_best_accuracy(range), 4));
  if (comparison.target) {
    const Cost spent = mean_cost_of(range, *comparison.target).value_or(Cost());
    cells.push_back(format_value(Quantity::kNumber, spent.step));
    cells.push_back(time_cell(run, spent.virtual_seconds, of_both_times));
    cells.push_back(format_value(Quantity::kBytes, shared_bytes(run, spent.bytes, by_node)));
  }
  cells.push_back(number_cell(mean_last(range, Measure::kHeldOutAccuracy), 4));
  cells.push_back(value_cell(Quantity::kNumber, mean_last(range, Measure::kConsensusDistance)));
  cells.push_back(value_cell(Quantity::kNumber, run.messages));
  cells.push_back(value_cell(Quantity::kNumber,
                             run.topology ? run.topology->spectral_gap : std::optional<double>()));
  return cells;
}

void leave_out_empty_columns(Comparison& comparison) {
  for (std::size_t i = comparison.columns.size(); i-- > 1;) {
    const auto is_empty = [i](const std::vector<std::string>& row) { return row[i] == kNoValue; };
    if (!std::ranges::all_of(comparison.rows, is_empty)) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    comparison.columns.erase(comparison.columns.begin() + at);
    for (auto& row : comparison.rows) row.erase(row.begin() + at);
  }
}

}  // namespace

std::string end_mark(const Run& run) {
  if (run.failed) return " (failed)";
  if (run.unfinished) return " (unfinished)";
  return run.incomplete.empty() ? "" : " (incomplete)";
}

Differences differences(std::span<const Run> runs) {
  const bool mixed =
      std::ranges::any_of(runs, [&](const Run& run) { return run.kind != runs.front().kind; });
  if (runs.empty() || mixed) return {};
  Differences found{differing_keys(runs, runs.front().kind), {}};
  found.values = short_values(runs, found.keys);
  return found;
}

Differences all_differences(std::span<const Run> runs) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, std::set<RunKind>> kinds;
  std::set<RunKind> all_kinds;
  for (const Run& run : runs) {
    all_kinds.insert(run.kind);
    for (const auto& [key, value] : told_of(run)) {
      values[key].insert(value);
      kinds[key].insert(run.kind);
    }
  }
  std::set<std::string> keys;
  for (const RunKind kind : all_kinds) {
    for (std::string& key : differing_keys(runs, kind, true)) keys.insert(std::move(key));
  }
  for (const auto& [key, having] : kinds) {
    if (is_incidental(key) || all_kinds.size() == 1) continue;
    const bool differs = having.size() > 1 && values[key].size() > 1;
    const bool makes_the_kind = having.size() == 1 && (rank(key) < 2 || key == "clients");
    if (differs || makes_the_kind) keys.insert(key);
  }
  Differences found{{keys.begin(), keys.end()}, {}};
  std::ranges::stable_sort(found.keys, {}, rank);
  for (const Run& run : runs) found.values.push_back(values_of(run, found.keys));
  return found;
}

std::vector<std::string> column_titles(std::span<const std::string> keys) {
  std::vector<std::string> titles;
  std::ranges::transform(keys, std::back_inserter(titles), column_title);
  const std::vector<std::string> shortest = titles;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (std::ranges::count(shortest, shortest[i]) > 1) titles[i] = keys[i];
    std::ranges::replace_if(
        titles[i], [](char c) { return c == '-' || c == '.'; }, ' ');
  }
  return titles;
}

std::string words_of(std::span<const std::string> keys, std::span<const std::string> values) {
  std::string name;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (values[i].empty()) continue;
    name += (name.empty() ? "" : ", ") + said(keys[i], values[i], shares_word(keys[i], keys));
  }
  return name;
}

std::vector<std::string> distinguishing_names(std::span<const Run> runs) {
  std::vector<std::string> names(runs.size());
  for (const RunKind kind : {RunKind::kGossip, RunKind::kFederated}) {
    const std::vector<std::string> keys = naming_keys(runs, kind);
    const auto values = short_values(runs, keys);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (runs[i].kind != kind) continue;
      names[i] = words_of(keys, values[i]);
      if (names[i].empty()) names[i] = own_name(runs[i]);
      if (runs.size() > 1) names[i] += end_mark(runs[i]);
    }
  }
  tell_apart(runs, names);
  return names;
}

std::optional<double> best_accuracy(const Run& run) {
  std::optional<double> best;
  for (const Evaluation& evaluation : run.evaluations) {
    const double accuracy = evaluation.at(Measure::kEvalAccuracy);
    if (std::isfinite(accuracy)) best = std::max(best.value_or(accuracy), accuracy);
  }
  return best;
}

std::optional<double> common_target(std::span<const Run> runs) {
  std::optional<double> lowest;
  for (const Run& run : runs) lowest = lower(lowest, best_accuracy(run));
  return target_below(lowest);
}

std::optional<Cost> cost_of(const Run& run, double target) {
  for (const Evaluation& evaluation : run.evaluations) {
    if (!(evaluation.at(Measure::kEvalAccuracy) >= target)) continue;
    return Cost{evaluation.at(Measure::kStep), evaluation.at(Measure::kVirtualSeconds),
                evaluation.at(Measure::kBytesSent)};
  }
  return std::nullopt;
}

std::optional<double> mean_best_accuracy(const SeedRange& range) {
  return mean_over(range, best_accuracy);
}

std::optional<Cost> mean_cost_of(const SeedRange& range, double target) {
  const auto mean = [&](double Cost::*part) {
    return mean_over(range, [&](const Run& run) {
      const auto cost = cost_of(run, target);
      return cost ? std::optional<double>((*cost).*part) : std::nullopt;
    });
  };
  const auto steps = mean(&Cost::step);
  if (!steps) return std::nullopt;
  return Cost{*steps, *mean(&Cost::virtual_seconds), *mean(&Cost::bytes)};
}

bool have_both_times(std::span<const Run> runs) {
  return std::ranges::any_of(
      runs, [&](const Run& run) { return run.real_time != runs.front().real_time; });
}

bool bytes_by_node(std::span<const Run> runs) {
  return std::ranges::all_of(runs, [](const Run& run) { return run.nodes.value_or(0) > 0; });
}

Comparison compare(std::span<const Run> runs, std::span<const std::string> names,
                   std::span<const SeedRange> ranges) {
  const bool by_node = bytes_by_node(runs);
  std::vector<SeedRange> own(ranges.begin(), ranges.end());
  if (ranges.empty()) {
    for (const Run& run : runs) own.push_back({{&run}, run.last(Measure::kEvalAccuracy), {}, {}});
  }
  std::optional<double> lowest;
  for (const SeedRange& range : own) {
    for (const Run* run : range.seeds) lowest = lower(lowest, best_accuracy(*run));
  }
  Comparison comparison{.target = target_below(lowest)};
  comparison.columns = {{"run", false}};
  if (!ranges.empty()) comparison.columns.push_back({"seeds"});
  comparison.columns.insert(comparison.columns.end(), {{"final accuracy"}, {"best accuracy"}});
  if (comparison.target) {
    const std::string target = fmt::format("{:.0f} %", *comparison.target * 100);
    comparison.columns.push_back({steps_word(runs) + " to " + target});
    comparison.columns.push_back({"time to " + target});
    comparison.columns.push_back({(by_node ? "bytes a node to " : "bytes to ") + target});
  }
  comparison.columns.insert(
      comparison.columns.end(),
      {{"held-out accuracy"}, {"consensus distance"}, {"messages"}, {"spectral gap"}});
  const bool of_both = have_both_times(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    comparison.rows.push_back(
        row(runs[i], names[i], comparison, by_node, of_both, !ranges.empty(), own[i]));
  }
  leave_out_empty_columns(comparison);
  return comparison;
}

}  // namespace starling::report
