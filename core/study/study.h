// SPDX-License-Identifier: Apache-2.0
// A study: many simulated runs by one command, each in a directory of its own. What is finished is
// skipped when the command is repeated, so that a study that was stopped, or whose grid has grown,
// goes on where it is. The runs follow each other; each has all threads.
#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/settings.h"
#include "core/config/command_line.h"
#include "core/report/run.h"
#include "core/study/study_plan.h"
#include "core/telemetry/interrupt_note.h"
#include "core/telemetry/progress_log.h"
#include "core/telemetry/terminal.h"

namespace starling::study {

// What the run at work tells the study; from any thread.
class RunDisplay {
 public:
  RunDisplay(telemetry::Progress& progress, telemetry::ProgressLog& log,
             const telemetry::InterruptNote& note, std::size_t runs_before, std::string name)
      : progress_(progress),
        log_(log),
        note_(note),
        runs_before_(runs_before),
        name_(std::move(name)),
        named_log_(log, name_) {}
  RunDisplay(const RunDisplay&) = delete;
  RunDisplay& operator=(const RunDisplay&) = delete;

  // `share` of the run is done, 0 to 1.
  void update(double share);
  // For its warnings and its trainers' lines, each behind the run's name.
  Log& log() { return named_log_; }
  // Of a program that saves its runs: this one is to be saved, and to end with "stopped".
  bool stop_asked() const { return note_.asked(); }

 private:
  class NamedLog final : public Log {
   public:
    NamedLog(Log& log, const std::string& name) : log_(log), name_(name) {}
    void write(LogLevel level, std::string_view line) override {
      log_.write(level, fmt::format("{}: {}", name_, line));
    }

   private:
    Log& log_;
    const std::string& name_;
  };

  telemetry::Progress& progress_;
  telemetry::ProgressLog& log_;
  const telemetry::InterruptNote& note_;
  std::size_t runs_before_;
  std::string name_;
  NamedLog named_log_;
};

// The program whose runs these are.
struct Program {
  std::string name;  // "starling-gossip simulate", as its runs record it
  // Sets the options of a run, those of the base and then these. The rest is about the run that was
  // configured last.
  std::function<Result<void>(const Settings&)> configure;
  // What can be refused without its data.
  std::function<Result<void>()> check;
  // What this run records: compared with report::Run::told() to recognise a finished run.
  std::function<Settings()> settings;
  // Runs it and writes its directory, which is missing or holds this very run unfinished; what
  // makes report::read_run() accept the directory as finished comes last and is durable. Returns
  // some words about how it ended.
  std::function<Result<std::string>(const std::filesystem::path&, RunDisplay&)> run;
  bool saves = false;  // a run that is asked to stop is saved first
  // Of such a program: what is said when it is asked to stop, where a run takes long to be saved.
  std::string stopping = {};
  // What a run writes into its directory. A directory with other files is not cleared for a new
  // run.
  std::vector<std::string> files;
};

// The first setting in which two runs differ, "KEY is A there and B here".
std::optional<std::string> difference(const Settings& recorded, const Settings& wanted);

// Between a run that has not finished and this one of `program` in this version, whose settings
// name `inputs` (InputDigests): "" where they are the same.
std::string difference_to_unfinished(const report::Run& run, std::string_view program,
                                     const Settings& settings, const Settings& inputs);
// The same of the run in the directory; none where no run is unfinished there.
std::optional<std::string> difference_to_unfinished(const std::filesystem::path& directory,
                                                    std::string_view program,
                                                    const Settings& settings,
                                                    const Settings& inputs);

// How errors name the run in the directory, which has not finished: "an unfinished run", "a
// failed run (the loss is not finite)".
std::string unfinished_words(const std::filesystem::path& directory);

// Whether the directory holds this run, finished, so that it need not run again: then says so.
// "out-not-empty" where it holds a finished run of other settings, or of input files that have
// changed; "bad-run" where its own results have. Of its other files that is a note on `err`.
[[nodiscard]] Result<bool> skip_finished(const std::filesystem::path& directory,
                                         const Settings& settings, config::OutputFormat format,
                                         std::ostream& out, std::ostream& err);

struct Surroundings {
  const Clock& clock;
  std::ostream& out;
  std::ostream& err;
  telemetry::Terminal out_terminal;
  telemetry::Terminal err_terminal;
};

struct Options {
  std::filesystem::path out;
  config::OutputFormat format = config::OutputFormat::kText;
};

// Shows the plan, runs what is not finished, and writes study.json, report.html and curves/ beside
// the runs. Returns the exit code: kFailed where a run failed. A study that cannot begin fails
// before anything runs.
[[nodiscard]] Result<config::ExitCode> run_study(const Plan& plan, const Program& program,
                                                 const Options& options,
                                                 const Surroundings& around);

}  // namespace starling::study
