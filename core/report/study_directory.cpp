// SPDX-License-Identifier: Apache-2.0
#include "core/report/study_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "core/base/durable_file.h"
#include "core/report/comparison.h"
#include "core/report/curve_files.h"
#include "core/report/file_sums.h"
#include "core/report/json_members.h"
#include "core/report/run_directory.h"
#include "core/report/run_report.h"

namespace starling::report {
namespace {

namespace json = boost::json;

constexpr const char* kCurves = "curves";
constexpr const char* kNotFinished = "has not finished";
constexpr std::size_t kStudyBytesMax = std::size_t{64} << 20;

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  if (std::isnan(value)) return std::nullopt;  // has no place in an order
  return value;
}

// Values of one setting: numbers by size, and before texts.
int order_of(const std::string& a, const std::string& b) {
  const auto x = number_of(a);
  const auto y = number_of(b);
  if (x && y && *x != *y) return *x < *y ? -1 : 1;
  if (x.has_value() != y.has_value()) return x ? -1 : 1;
  return a.compare(b);
}

// By what sets them apart, as names have it; the seed last.
void sort_runs(std::vector<Run>& runs) {
  const Differences differing = differences(runs);
  std::vector<std::size_t> order(runs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    for (std::size_t k = 0; k < differing.keys.size(); ++k) {
      const int found = order_of(differing.values[a][k], differing.values[b][k]);
      if (found != 0) return found < 0;
    }
    return runs[a].directory < runs[b].directory;
  });
  std::vector<Run> sorted;
  for (const std::size_t i : order) sorted.push_back(std::move(runs[i]));
  runs = std::move(sorted);
}

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

bool holds_end(const std::filesystem::path& directory) {
  return is_file(directory / "summary.json") || is_file(directory / "run.json");
}

// What a run leaves before it has ended.
bool holds_beginning(const std::filesystem::path& directory) {
  std::error_code ignored;
  return is_file(directory / "metrics.jsonl") ||
         std::filesystem::is_directory(directory / "models", ignored);
}

// What study.json says of its runs, by their directories.
struct PlannedRuns {
  std::map<std::string, std::string> failures;  // with their reasons
  std::vector<std::string> open;
};

// None without a study.json that can be read.
PlannedRuns read_planned(const std::filesystem::path& directory) {
  PlannedRuns planned;
  const auto text = read_text_file(directory / "study.json", kStudyBytesMax);
  if (!text) return planned;
  const auto study = parse_object(*text, "study.json");
  if (!study) return planned;
  const json::value* runs = study->if_contains("runs");
  if (runs == nullptr || !runs->is_array()) return planned;
  for (const json::value& value : runs->get_array()) {
    const json::object* run = value.if_object();
    if (run == nullptr) continue;
    const auto name = text_member(*run, "directory", "study.json");
    const auto state = text_member(*run, "state", "study.json");
    if (!name || !state) continue;
    if (*state == "open") planned.open.push_back(*name);
    const auto reason = text_member(*run, "reason", "study.json");
    if (reason && *state == "failed") planned.failures[*name] = *reason;
  }
  return planned;
}

// Why it is left out; null: it has not measured anything.
std::string reason_of(const Run* run) {
  if (run == nullptr || !run->failed) return kNotFinished;
  return run->failure.empty() ? "failed" : "failed: " + run->failure;
}

// "metrics.jsonl has changed since the run ended"; "" of none.
std::string damage_sentence(std::span<const std::string> names) {
  if (names.empty()) return "";
  return fmt::format("{} {} changed since the run ended, or cannot be read", fmt::join(names, ", "),
                     names.size() == 1 ? "has" : "have");
}

// By its name, "accuracy-by-step.csv".
bool is_curve(const std::string& name) {
  return name.find("-by-") != name.npos && (name.ends_with(".csv") || name.ends_with(".svg"));
}

Result<void> write_all(const std::filesystem::path& directory,
                       const std::vector<CurveFile>& files) {
  for (const CurveFile& file : files) {
    STARLING_TRY(write_durably(directory / file.name, as_bytes(file.text)));
  }
  return {};
}

}  // namespace

Result<std::string> check_unchanged(const std::filesystem::path& directory) {
  std::vector<std::string> needed;
  std::vector<std::string> others;
  for (std::string& name : changed_files(directory)) {
    const bool is_needed = name == "metrics.jsonl" || name == "summary.json" || name == "run.json";
    (is_needed ? needed : others).push_back(std::move(name));
  }
  if (!needed.empty()) {
    return rejected("bad-run", fmt::format("{}; restore it, or remove {} and run it again",
                                           damage_sentence(needed), directory.string()));
  }
  return damage_sentence(others);
}

bool holds_run(const std::filesystem::path& directory) {
  return holds_end(directory) || is_file(directory / kUnfinishedFile);
}

Result<StudyRuns> read_study(const std::filesystem::path& directory) {
  StudyRuns study;
  const PlannedRuns planned = read_planned(directory);
  const std::map<std::string, std::string>& failures = planned.failures;
  std::vector<Run> unfinished;
  std::optional<Error> damage;  // the first that was found
  const auto leave_out_damaged = [&](const std::string& name, const Error& error) {
    if (!damage) damage = error;
    study.left_out.push_back({name, kUnreadable + error.message()});
  };
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    if (!entry.is_directory(ignored)) continue;
    const std::string name = entry.path().filename().string();
    const bool ended = holds_end(entry.path());
    if (!ended && !holds_beginning(entry.path()) && !failures.contains(name)) continue;
    auto run = read_run(entry.path());
    if (run && ended && is_whole(*run)) {
      const auto others = check_unchanged(entry.path());
      if (!others) {
        leave_out_damaged(name, others.error());
        continue;
      }
      if (!others->empty()) study.damaged.push_back({name, *others});
      study.runs.push_back(std::move(*run));
      continue;
    }
    const auto failure = failures.find(name);
    if (failure != failures.end()) {
      study.left_out.push_back({name, "failed: " + failure->second});
    } else if (run || run.error().code() == "no-run") {
      study.left_out.push_back({name, reason_of(run ? &*run : nullptr)});
      if (run && !ended) unfinished.push_back(std::move(*run));
    } else {
      leave_out_damaged(name, run.error());
    }
  }
  if (study.runs.empty() && !unfinished.empty()) {
    study.runs = std::move(unfinished);
    std::erase_if(study.left_out, [&](const LeftOut& left_out) {
      return std::ranges::any_of(study.runs, [&](const Run& run) {
        return run.directory.filename().string() == left_out.name;
      });
    });
  }
  if (!std::filesystem::exists(directory, ignored)) {
    return rejected("no-run", fmt::format("there is no {}", directory.string()));
  }
  if (study.runs.empty() && damage) return *damage;
  if (study.runs.empty() && std::filesystem::exists(directory / kSumsFile, ignored)) {
    return rejected("bad-run",
                    fmt::format("{} holds a finished run that lacks its record, summary.json or "
                                "run.json: restore the file, or remove {} and run it again",
                                directory.string(), directory.string()));
  }
  if (study.runs.empty() && holds_beginning(directory)) {
    return rejected("bad-run",
                    fmt::format("{} holds a run that has not finished, without a record of what "
                                "it is: a run of launch is shown once it has finished",
                                directory.string()));
  }
  if (study.runs.empty()) {
    return rejected("no-run", fmt::format("{} holds no run, nor does a directory in it: simulate "
                                          "--out writes one",
                                          directory.string()));
  }
  for (const std::string& name : planned.open) {
    const auto run = directory / name;
    if (!holds_end(run) && !holds_beginning(run)) study.left_out.push_back({name, kNotBegun});
  }
  sort_runs(study.runs);
  std::ranges::sort(study.left_out, {}, &LeftOut::name);
  return study;
}

std::filesystem::path curves_beside(const std::filesystem::path& page) {
  return page.parent_path() / kCurves;
}

Result<void> write_comparison(std::span<const Run> runs, const std::filesystem::path& page,
                              CurveFormats formats, std::span<const LeftOut> left_out) {
  STARLING_TRY(write_durably(page, as_bytes(render_report(runs, left_out))));
  if (!formats.csv && !formats.svg) return {};
  const std::filesystem::path curves = curves_beside(page);
  STARLING_TRY(make_directory(curves));
  // Curves of an earlier report would look like this one's.
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(curves, ignored)) {
    if (is_curve(entry.path().filename().string())) STARLING_TRY(remove_durably(entry.path()));
  }
  if (formats.csv) STARLING_TRY(write_all(curves, curves_as_csv(runs)));
  if (formats.svg) STARLING_TRY(write_all(curves, curves_as_svg(runs)));
  return {};
}

}  // namespace starling::report
