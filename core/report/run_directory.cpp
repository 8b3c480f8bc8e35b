// SPDX-License-Identifier: Apache-2.0
#include "core/report/run_directory.h"

#include <fmt/format.h>

#include "core/base/durable_file.h"
#include "core/report/run_json.h"
#include "core/report/run_report.h"

namespace starling::report {
namespace {

constexpr std::size_t kSummaryBytesMax = std::size_t{16} << 20;
constexpr std::size_t kMetricsBytesMax = std::size_t{512} << 20;
constexpr std::size_t kDrawingBytesMax = std::size_t{4} << 20;

bool holds(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored);
}

Result<Run> read_simulation(const std::filesystem::path& directory, std::string_view summary) {
  STARLING_ASSIGN(const std::string metrics,
                  read_text_file(directory / "metrics.jsonl", kMetricsBytesMax));
  STARLING_ASSIGN(Run run, parse_simulation(summary, metrics));
  if (auto drawing = read_text_file(directory / "topology.svg", kDrawingBytesMax)) {
    run.topology_svg = std::move(*drawing);
  }
  return run;
}

void mark_unfinished(Run& run, const std::filesystem::path& directory) {
  run.unfinished = true;
  run.has_checkpoint = holds(directory / kCheckpointFile);
  run.directory = directory;
}

// The lines that were written whole; its end is that of the last measurement.
Result<Run> read_unfinished(const std::filesystem::path& directory, std::string_view record) {
  if (is_federated_run(record)) {
    STARLING_ASSIGN(Run run, parse_federated_run(record));
    mark_unfinished(run, directory);
    run.state.clear();  // "running", whether or not it is
    return run;
  }
  std::string metrics;
  if (auto text = read_text_file(directory / "metrics.jsonl", kMetricsBytesMax)) {
    metrics = text->substr(0, text->rfind('\n') + 1);
  }
  auto parsed = parse_simulation(record, metrics);
  // Nothing made the lines durable: after a loss of power they may be anything.
  if (!parsed) parsed = parse_simulation(record, "");
  STARLING_ASSIGN(Run run, std::move(parsed));
  mark_unfinished(run, directory);
  run.steps = run.last(Measure::kStep);
  run.virtual_seconds = run.last(Measure::kVirtualSeconds);
  run.wall_seconds = run.last(Measure::kWallSeconds);
  run.bytes_sent = run.last(Measure::kBytesSent);
  run.messages = run.last(Measure::kMessages);
  return run;
}

// A file is missing, cannot be read or does not say what it should.
Error damaged_run(const std::filesystem::path& directory, RunKind kind, const Error& why) {
  const std::string again = kind == RunKind::kGossip
                                ? fmt::format(", or remove {} and run it again", directory.string())
                                : "";
  return rejected("bad-run", fmt::format("{}: {}; restore the file{}", directory.string(),
                                         why.message(), again));
}

// `record`: the text of summary.json or run.json.
Result<Run> read_recorded(const std::filesystem::path& directory, RunKind kind,
                          std::string_view record) {
  auto run =
      kind == RunKind::kGossip ? read_simulation(directory, record) : parse_federated_run(record);
  if (!run) return damaged_run(directory, kind, run.error());
  run->directory = directory;
  return run;
}

}  // namespace

Result<Run> read_run(const std::filesystem::path& directory) {
  const bool simulation = holds(directory / "summary.json");
  if (!simulation && !holds(directory / "run.json") && holds(directory / kUnfinishedFile)) {
    STARLING_ASSIGN(const std::string record,
                    read_text_file(directory / kUnfinishedFile, kSummaryBytesMax));
    auto run = read_unfinished(directory, record);
    if (run) return run;
    return rejected("bad-run",
                    fmt::format("{} is damaged: remove {} to begin that run again, or "
                                "name another directory",
                                (directory / kUnfinishedFile).string(), directory.string()));
  }
  if (!simulation && !holds(directory / "run.json")) {
    return rejected("no-run",
                    fmt::format("{} holds no run: it has neither summary.json, which simulate "
                                "--out writes at its end, nor a coordinator's run.json",
                                directory.string()));
  }
  const RunKind kind = simulation ? RunKind::kGossip : RunKind::kFederated;
  const auto record = simulation ? read_text_file(directory / "summary.json", kSummaryBytesMax)
                                 : read_text_file(directory / "run.json", kMetricsBytesMax);
  if (!record) return damaged_run(directory, kind, record.error());
  return read_recorded(directory, kind, *record);
}

bool is_whole(const Run& run) {
  return run.kind == RunKind::kGossip ? !run.unfinished : run.state == "completed";
}

Result<void> write_report(const std::filesystem::path& run_directory) {
  STARLING_ASSIGN(const Run run, read_run(run_directory));
  const std::string page = render_report({&run, 1});
  return write_durably(run_directory / "report.html", as_bytes(page));
}

Result<void> write_report(const std::filesystem::path& run_directory, RunKind kind,
                          std::string_view record) {
  STARLING_ASSIGN(const Run run, read_recorded(run_directory, kind, record));
  const std::string page = render_report({&run, 1});
  return write_durably(run_directory / "report.html", as_bytes(page));
}

}  // namespace starling::report
