// SPDX-License-Identifier: Apache-2.0
// report DIR...: the page of a run, of a study, or of several runs beside each other, its curves as
// files, and its table as text.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <iterator>
#include <ostream>

#include "core/base/counted.h"
#include "core/base/escape_controls.h"
#include "core/config/command_line.h"
#include "core/report/comparison.h"
#include "core/report/comparison_text.h"
#include "core/report/seed_groups.h"
#include "core/report/study_directory.h"
#include "gossip/tool/commands.h"

namespace starling::gossip {
namespace {

namespace json = boost::json;
using report::Measure;

struct ReportFlags {
  std::vector<std::string> directories;
  std::string out;
  report::CurveFormats curves;
  config::OutputFormat format = config::OutputFormat::kText;
};

std::filesystem::path page_of(const ReportFlags& flags) {
  if (!flags.out.empty()) return flags.out;
  if (flags.directories.size() > 1) return "comparison.html";
  return std::filesystem::path(flags.directories.front()) / "report.html";
}

json::value or_null(std::optional<double> value) {
  return value && std::isfinite(*value) ? json::value(*value) : json::value(nullptr);
}

json::value spent(const std::optional<report::Cost>& cost, double report::Cost::*part) {
  return cost ? or_null(*cost.*part) : json::value(nullptr);
}

json::object as_json(const report::Run& run, const std::string& name,
                     std::optional<double> target) {
  const auto cost = target ? report::cost_of(run, *target) : std::nullopt;
  return {{"name", name},
          {"directory", run.directory.string()},
          {"kind", run.kind == report::RunKind::kGossip ? "gossip" : "federated"},
          {"real_processes", run.real_time},
          {"eval_accuracy", or_null(run.last(Measure::kEvalAccuracy))},
          {"eval_accuracy_mean_model", or_null(run.last(Measure::kEvalAccuracyMeanModel))},
          {"eval_accuracy_best", or_null(report::best_accuracy(run))},
          {"steps_to_target", spent(cost, &report::Cost::step)},
          {"virtual_seconds_to_target", spent(cost, &report::Cost::virtual_seconds)},
          {"bytes_to_target", spent(cost, &report::Cost::bytes)},
          {"consensus_distance", or_null(run.last(Measure::kConsensusDistance))},
          {"virtual_seconds", or_null(run.virtual_seconds)},
          {"bytes_sent", or_null(run.bytes_sent)},
          {"messages", or_null(run.messages)},
          {"spectral_gap",
           or_null(run.topology ? run.topology->spectral_gap : std::optional<double>())}};
}

// Of several seeds the means of what each has by itself.
json::array groups_as_json(const std::vector<report::Run>& runs, std::optional<double> target) {
  const report::SeedGroups groups = report::make_seed_groups(runs);
  const std::vector<std::string> names = report::distinguishing_names(groups.means);
  json::array array;
  for (std::size_t i = 0; i < names.size(); ++i) {
    json::array directories;
    for (const std::size_t run : groups.members[i]) {
      directories.push_back(json::value(runs[run].directory.string()));
    }
    const report::SeedRange& range = groups.ranges[i];
    const auto cost = target ? report::mean_cost_of(range, *target) : std::nullopt;
    array.push_back({{"name", names[i]},
                     {"directories", std::move(directories)},
                     {"eval_accuracy", or_null(range.mean)},
                     {"eval_accuracy_lowest", or_null(range.lowest)},
                     {"eval_accuracy_highest", or_null(range.highest)},
                     {"eval_accuracy_best", or_null(report::mean_best_accuracy(range))},
                     {"steps_to_target", spent(cost, &report::Cost::step)},
                     {"virtual_seconds_to_target", spent(cost, &report::Cost::virtual_seconds)},
                     {"bytes_to_target", spent(cost, &report::Cost::bytes)}});
  }
  return array;
}

void print(const std::vector<report::Run>& runs, const std::filesystem::path& page,
           const ReportFlags& flags, CommandContext& context) {
  if (flags.format == config::OutputFormat::kText) {
    context.out << report::comparison_text(runs, context.terminal.line_max)
                << "written: " << page.string();
    if (flags.curves.csv || flags.curves.svg) {
      context.out << ", its curves in " << report::curves_beside(page).string() << "/";
    }
    context.out << "\n";
    return;
  }
  const std::vector<std::string> names = report::distinguishing_names(runs);
  const std::optional<double> target = report::common_target(runs);
  json::array array;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    array.push_back(as_json(runs[i], names[i], target));
  }
  context.out << json::serialize(json::object{{"report", page.string()},
                                              {"target_accuracy", or_null(target)},
                                              {"runs", std::move(array)},
                                              {"groups", groups_as_json(runs, target)}})
              << "\n";
}

void note_unfinished(const report::Run& run, std::ostream& err) {
  if (!run.unfinished && !run.failed) return;
  const std::string why = run.failure.empty() ? "" : ": " + escape_controls(run.failure);
  err << fmt::format(
      "note: {} {}; the report ends at {} {:.0f}\n", escape_controls(run.directory.string()),
      run.failed ? "failed" + why : "has not finished",
      run.kind == report::RunKind::kFederated ? "round" : "step", run.steps.value_or(0));
}

void note_damage(const std::string& run, const std::string& damage, std::ostream& err) {
  if (damage.empty()) return;
  err << fmt::format("note: {}: {}\n", escape_controls(run), escape_controls(damage));
}

// What is to be shown.
struct Shown {
  std::vector<report::Run> runs;
  std::vector<report::LeftOut> left_out;
};

// Of a run, or of the runs of a study.
Result<void> read_runs(const std::string& directory, Shown& shown, std::ostream& err) {
  if (report::holds_run(directory)) {
    STARLING_ASSIGN(report::Run run, report::read_run(directory));
    const auto damage = report::check_unchanged(directory);
    if (!damage) return damage.error().within(directory);
    note_unfinished(run, err);
    note_damage(directory, *damage, err);
    shown.runs.push_back(std::move(run));
    return {};
  }
  std::error_code ignored;
  if (!std::filesystem::exists(directory, ignored)) {
    return config::usage_error(fmt::format("there is no directory {}", directory));
  }
  STARLING_ASSIGN(report::StudyRuns study, report::read_study(directory));
  for (const report::Run& run : study.runs) note_unfinished(run, err);
  for (const report::LeftOut& run : study.damaged) note_damage(run.name, run.reason, err);
  std::size_t not_begun = 0;
  for (const report::LeftOut& run : study.left_out) {
    if (run.reason == report::kNotBegun) {
      ++not_begun;
      continue;
    }
    err << fmt::format("note: {} {}; it is left out\n", escape_controls(run.name),
                       escape_controls(run.reason));
  }
  if (not_begun > 0) {
    err << fmt::format("note: {} of the study in {} {} not begun\n", counted(not_begun, "run"),
                       escape_controls(directory), not_begun == 1 ? "has" : "have");
  }
  std::ranges::move(study.runs, std::back_inserter(shown.runs));
  std::ranges::move(study.left_out, std::back_inserter(shown.left_out));
  return {};
}

// Whether it is what else a study has beside the run of another argument, as "study/*" names it.
bool is_beside_a_run(const ReportFlags& flags, const std::string& argument) {
  const auto folder = [](const std::string& path) {
    return (std::filesystem::path(path) / "").lexically_normal().parent_path().parent_path();
  };
  std::error_code ignored;
  if (!std::filesystem::exists(argument, ignored)) return false;
  return std::ranges::any_of(flags.directories, [&](const std::string& other) {
    return folder(other) == folder(argument) && report::holds_run(other);
  });
}

// It is to be said before the page is made of much data.
Result<void> check_page(const std::filesystem::path& page) {
  std::error_code ignored;
  if (std::filesystem::is_directory(page, ignored)) {
    return config::usage_error(
        fmt::format("--out {0} is a directory; name a file in it, such as "
                    "{1}",
                    page.string(), (page / "comparison.html").string()));
  }
  // A device or a pipe would be replaced.
  if (std::filesystem::exists(page, ignored) && !std::filesystem::is_regular_file(page, ignored)) {
    return config::usage_error(
        fmt::format("--out {} is no regular file: name a new file", page.string()));
  }
  const std::filesystem::path directory = page.has_parent_path() ? page.parent_path() : ".";
  if (!std::filesystem::is_directory(directory, ignored)) {
    return config::usage_error(
        fmt::format("there is no directory {} to write the page into", directory.string()));
  }
  if (::access(directory.c_str(), W_OK) == 0) return {};
  return rejected("not-writable", fmt::format("nothing may be written into {}; name another page "
                                              "with --out FILE",
                                              directory.string()));
}

Result<void> make_report(const ReportFlags& flags, CommandContext& context) {
  Shown shown;
  std::vector<Error> damages;
  for (const std::string& directory : flags.directories) {
    const auto read = read_runs(directory, shown, context.err);
    if (read) continue;
    if (read.error().code() == "bad-run") {
      damages.push_back(read.error());
      shown.left_out.push_back({directory, report::kUnreadable + read.error().message()});
      continue;
    }
    if (read.error().code() != "no-run" || !is_beside_a_run(flags, directory)) return read.error();
    context.err << fmt::format("note: {} holds no run; it is left out\n",
                               escape_controls(directory));
  }
  if (shown.runs.empty() && !damages.empty()) return damages.front();
  for (const Error& damage : damages) {
    context.err << fmt::format("note: {}; it is left out\n", escape_controls(damage.message()));
  }
  const std::filesystem::path page = page_of(flags);
  STARLING_TRY(check_page(page));
  STARLING_TRY(report::write_comparison(shown.runs, page, flags.curves, shown.left_out));
  print(shown.runs, page, flags, context);
  return {};
}

}  // namespace

void add_report_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "report",
      "the page of a run, of a study, or of several runs beside each other, as one HTML file; runs "
      "that differ only in their seed become a mean and a band");
  const auto flags = std::make_shared<ReportFlags>();
  command
      ->add_option("directory", flags->directories,
                   "what simulate --out wrote, here or of starling-coordinator: runs or studies")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--out", flags->out,
                   "the page to write; otherwise report.html in the directory, or "
                   "comparison.html here where there are several")
      ->type_name("FILE");
  command->add_flag("--csv", flags->curves.csv,
                    "every curve as CSV too, in curves/ beside the page");
  command->add_flag("--svg", flags->curves.svg,
                    "every curve as SVG too, for a paper, in curves/ beside the page");
  config::add_format(*command, flags->format);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return config::report(make_report(*flags, context), context.err);
    };
  });
}

}  // namespace starling::gossip
