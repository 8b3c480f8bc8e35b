// SPDX-License-Identifier: Apache-2.0
// report DIR...: the page of a run, or of several beside each other, and the table of it as text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <cmath>
#include <ostream>

#include "core/base/durable_file.h"
#include "core/base/escape_controls.h"
#include "core/config/command_line.h"
#include "core/report/comparison.h"
#include "core/report/run_directory.h"
#include "core/report/run_report.h"
#include "core/telemetry/text_table.h"
#include "gossip/tool/commands.h"

namespace starling::gossip {
namespace {

namespace json = boost::json;

struct ReportFlags {
  std::vector<std::string> directories;
  std::string out;
  config::OutputFormat format = config::OutputFormat::kText;
};

std::filesystem::path page_of(const ReportFlags& flags) {
  if (!flags.out.empty()) return flags.out;
  if (flags.directories.size() > 1) return "comparison.html";
  return std::filesystem::path(flags.directories.front()) / "report.html";
}

std::string as_text(const report::Comparison& comparison, const telemetry::Terminal& terminal) {
  std::vector<std::string> headers;
  for (const report::ComparisonColumn& column : comparison.columns) {
    std::string title = (column.number ? ">" : "") + column.title;
    std::ranges::transform(title, title.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    headers.push_back(std::move(title));
  }
  telemetry::TextTable table(std::move(headers));
  for (const std::vector<std::string>& row : comparison.rows) {
    std::vector<std::string> cells;
    for (const std::string& cell : row) cells.push_back(escape_controls(cell));
    table.add(std::move(cells));
  }
  return table.text(terminal.line_max);
}

json::value or_null(std::optional<double> value) {
  return value && std::isfinite(*value) ? json::value(*value) : json::value(nullptr);
}

json::object as_json(const report::Run& run, const std::string& name,
                     std::optional<double> target) {
  using report::Measure;
  const auto cost = target ? report::cost_of(run, *target) : std::nullopt;
  const auto spent = [&](double report::Cost::*part) {
    return cost ? or_null(*cost.*part) : json::value(nullptr);
  };
  return {{"name", name},
          {"directory", run.directory.string()},
          {"kind", run.kind == report::RunKind::kGossip ? "gossip" : "federated"},
          {"eval_accuracy", or_null(run.last(Measure::kEvalAccuracy))},
          {"eval_accuracy_mean_model", or_null(run.last(Measure::kEvalAccuracyMeanModel))},
          {"eval_accuracy_best", or_null(report::best_accuracy(run))},
          {"steps_to_target", spent(&report::Cost::step)},
          {"virtual_seconds_to_target", spent(&report::Cost::virtual_seconds)},
          {"bytes_to_target", spent(&report::Cost::bytes)},
          {"consensus_distance", or_null(run.last(Measure::kConsensusDistance))},
          {"virtual_seconds", or_null(run.virtual_seconds)},
          {"bytes_sent", or_null(run.bytes_sent)},
          {"messages", or_null(run.messages)},
          {"spectral_gap",
           or_null(run.topology ? run.topology->spectral_gap : std::optional<double>())}};
}

void print(const std::vector<report::Run>& runs, const std::filesystem::path& page,
           const ReportFlags& flags, CommandContext& context) {
  const std::vector<std::string> names = report::distinguishing_names(runs);
  const report::Comparison comparison = report::compare(runs, names);
  if (flags.format == config::OutputFormat::kText) {
    context.out << as_text(comparison, context.terminal) << "written: " << page.string() << "\n";
    return;
  }
  json::array array;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    array.push_back(as_json(runs[i], names[i], comparison.target));
  }
  context.out << json::serialize(json::object{{"report", page.string()},
                                              {"target_accuracy", or_null(comparison.target)},
                                              {"runs", std::move(array)}})
              << "\n";
}

Result<void> make_report(const ReportFlags& flags, CommandContext& context) {
  std::vector<report::Run> runs;
  for (const std::string& directory : flags.directories) {
    STARLING_ASSIGN(report::Run run, report::read_run(directory));
    runs.push_back(std::move(run));
  }
  const std::filesystem::path page = page_of(flags);
  const std::string html = report::render_report(runs);
  STARLING_TRY(write_durably(page, as_bytes(html)));
  print(runs, page, flags, context);
  return {};
}

}  // namespace

void add_report_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "report", "the page of a run, or of several runs beside each other, as one HTML file");
  const auto flags = std::make_shared<ReportFlags>();
  command
      ->add_option("directory", flags->directories,
                   "what simulate --out wrote, here or of starling-coordinator")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--out", flags->out,
                   "the page to write; otherwise report.html in the run's directory, or "
                   "comparison.html here where there are several")
      ->type_name("FILE");
  config::add_format(*command, flags->format);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return config::report(make_report(*flags, context), context.err);
    };
  });
}

}  // namespace starling::gossip
