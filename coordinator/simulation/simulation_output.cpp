// SPDX-License-Identifier: Apache-2.0
#include "coordinator/simulation/simulation_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/durable_file.h"
#include "core/report/file_sums.h"
#include "core/report/run_directory.h"
#include "core/store/checkpoints.h"
#include "core/study/study.h"

namespace starling::coordinator {
namespace {

Error not_empty(const std::filesystem::path& directory, std::string_view why) {
  return rejected("out-not-empty",
                  fmt::format("{} {}: name a new directory with --out{}", directory.string(), why,
                              why == "is not empty" ? "" : ", or remove it"));
}

bool holds(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// Two studies in one directory would look like one.
Result<void> check_new(const std::filesystem::path& directory) {
  if (holds(directory / "run.json")) {
    const auto run = report::read_run(directory);
    const bool failed = run && run->failed;
    return not_empty(directory, failed ? "holds " + study::unfinished_words(directory)
                                       : "holds a simulation already");
  }
  std::error_code ignored;
  bool only_models = true;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const auto name = entry.path().filename();
    only_models =
        only_models && (name == "models" || name == "report.html" || is_temporary(name.string()));
  }
  if (!only_models) return not_empty(directory, "is not empty");
  // Models of what an earlier version left unfinished; none where it failed before its first.
  const std::filesystem::path models = directory / "models";
  if (!holds(models) || std::filesystem::is_empty(models, ignored)) return {};
  return not_empty(directory, "holds an unfinished simulation");
}

// Within the run's directory, in order.
std::vector<std::string> model_names(const std::filesystem::path& models,
                                     std::span<const Round> damaged) {
  std::set<std::string> left_out;
  for (const Round round : damaged) {
    left_out.insert(store::Checkpoints::file_name(round));
    left_out.insert(store::Checkpoints::state_file_name(round));
  }
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(models, ignored)) {
    if (left_out.contains(entry.path().filename().string())) continue;
    names.push_back((models.filename() / entry.path().filename()).string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

// --- the disk ------------------------------------------------------------------------------------

void OutputDisk::repeat_write(const store::ModelRecord& model) {
  written_.insert(store::Checkpoints::file_name(model.round));
  if (model.state) written_.insert(store::Checkpoints::state_file_name(model.round));
}

Result<void> OutputDisk::end_repetition() {
  repeats_ = false;
  STARLING_ASSIGN(const auto entries, list(models_));
  for (const DiskEntry& entry : entries) {
    const bool is_file = entry.bytes.has_value();
    if (is_file && !written_.contains(entry.name)) STARLING_TRY(remove(models_ / entry.name));
  }
  written_.clear();
  return sync(models_);
}

Result<void> OutputDisk::write(const std::filesystem::path& path,
                               std::span<const SharedBytes> parts) {
  if (repeats_) {
    written_.insert(path.filename().string());
    return {};
  }
  auto written = SystemDisk::write(path, parts);
  if (written || written.error().kind() != ErrorKind::kOverloaded) return written;
  return internal(written.error().code(), written.error().message());
}

Result<std::vector<DiskEntry>> OutputDisk::list(const std::filesystem::path& directory) {
  STARLING_ASSIGN(auto entries, SystemDisk::list(directory));
  if (repeats_) {
    std::erase_if(entries, [this](const auto& entry) { return !written_.contains(entry.name); });
  }
  return entries;
}

Result<void> OutputDisk::remove(const std::filesystem::path& path) {
  if (!repeats_) return SystemDisk::remove(path);
  written_.erase(path.filename().string());
  return {};
}

// --- the directory -------------------------------------------------------------------------------

Result<SimulationOutput> SimulationOutput::begin(const std::filesystem::path& directory,
                                                 const Settings& asked, const Settings& inputs,
                                                 const std::string& record) {
  STARLING_TRY(make_directory(directory));
  DirectoryLock in_use(directory);
  if (in_use.held_elsewhere()) {
    return rejected("out-in-use",
                    fmt::format("another command writes a run into {}: wait for its end, or name "
                                "another directory with --out",
                                directory.string()));
  }
  SimulationOutput output(directory, std::move(in_use));
  const auto difference =
      study::difference_to_unfinished(directory, kSimulateProgram, asked, inputs);
  output.was_begun_ = difference.has_value();
  if (difference && !difference->empty()) {
    return not_empty(directory, fmt::format("holds {} with other settings ({})",
                                            study::unfinished_words(directory), *difference));
  }
  if (!difference) {
    STARLING_TRY(check_new(directory));
    STARLING_TRY(output.write_unfinished(record));
  }
  sweep_temporaries(directory);
  STARLING_TRY(make_directory(output.models()));
  sweep_temporaries(output.models());
  return output;
}

std::vector<std::string> SimulationOutput::files() {
  return {report::kUnfinishedFile, "checkpoint.state", "models",      "run.json", sim::kLinksFile,
          sim::kSpeedsFile,        sim::kPresenceFile, "report.html", "curves",   report::kSumsFile,
          report::kCheckedFile};
}

Result<void> SimulationOutput::begin_again() {
  STARLING_TRY(remove_durably(checkpoint()));
  std::error_code error;
  std::filesystem::remove_all(models(), error);
  if (error) return file_error("remove", models());
  was_begun_ = false;
  return make_directory(models());
}

Result<void> SimulationOutput::write_unfinished(const std::string& record) const {
  return write_durably(directory_ / report::kUnfinishedFile, as_bytes(record));
}

Result<void> SimulationOutput::write_values(const sim::WrittenValues& values) const {
  return sim::write_values(directory_, values);
}

Result<void> SimulationOutput::finish(const std::string& record,
                                      std::span<const Round> damaged) const {
  // run.json says that all is there, so it comes last.
  STARLING_TRY(report::write_report(directory_, report::RunKind::kFederated, record));
  std::vector<std::string> names = model_names(models(), damaged);
  names.insert(names.end(), {sim::kLinksFile, sim::kSpeedsFile, sim::kPresenceFile});
  STARLING_TRY(report::write_sums(directory_, names, "run.json", record));
  STARLING_TRY(write_durably(directory_ / "run.json", as_bytes(record)));
  STARLING_TRY(remove_durably(checkpoint()));
  return remove_durably(directory_ / report::kUnfinishedFile);
}

}  // namespace starling::coordinator
