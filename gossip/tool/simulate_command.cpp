// SPDX-License-Identifier: Apache-2.0
// simulate [NET.toml]: flags, progress and what is printed; of one run, or of a study of many.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <functional>
#include <ostream>
#include <set>

#include "core/base/compute_pool.h"
#include "core/base/save_policy.h"
#include "core/config/binder.h"
#include "core/config/command_line.h"
#include "core/study/study.h"
#include "core/telemetry/interrupt_note.h"
#include "core/telemetry/progress_log.h"
#include "gossip/simulation/experiment.h"
#include "gossip/simulation/run_identity.h"
#include "gossip/tool/commands.h"
#include "gossip/tool/run_text.h"
#include "gossip/tool/run_writer.h"
#include "gossip/tool/trainer_flag.h"

namespace starling::gossip {
namespace {

constexpr const char* kProgram = "starling-gossip simulate";

struct SimulateFlags {
  config::Binder binder;
  NetOptions options;
  std::string file;
  std::string out;
  std::string trainer;
  unsigned workers = 0;
  bool real_protocol = false;
  unsigned threads = available_processors();
  config::StudyFlags study;
  config::OutputFormat format = config::OutputFormat::kText;
};

// What a run records, by which a repeated study knows it: every key, and the flags that decide it.
Settings recorded_settings(const SimulateFlags& flags) {
  Settings settings = settings_of_run(flags.binder, flags.trainer);
  if (flags.real_protocol) settings.emplace_back("real-protocol", "true");
  return settings;
}

Result<std::shared_ptr<const NetworkTrainers>> start_trainers(const SimulateFlags& flags,
                                                              Log& log) {
  if (flags.trainer.empty()) return std::shared_ptr<const NetworkTrainers>();
  return NetworkTrainers::start(flags.options, client::trainer_of(flags.trainer), flags.threads,
                                log);
}

Simulated simulated_by(const SimulateFlags& flags) {
  return flags.real_protocol ? Simulated::kPeers : Simulated::kRecurrence;
}

// Whole peers are never saved.
bool saves(const SimulateFlags& flags) { return !flags.out.empty() && !flags.real_protocol; }

// Of the network as its options are now. `out` may be empty; the hooks' calls come before what is
// written of a measurement.
Result<SimulationResult> run_network(const SimulateFlags& flags, const std::filesystem::path& out,
                                     const SimulationHooks& hooks,
                                     const std::function<bool()>& stop_asked, Log& log,
                                     const Clock& clock) {
  STARLING_ASSIGN(auto trainers, start_trainers(flags, log));
  STARLING_ASSIGN(const Experiment experiment,
                  prepare(flags.options, std::move(trainers), simulated_by(flags)));
  const std::string note = evaluation_note(experiment);
  if (!note.empty() && !flags.study.wanted()) log.info("{}", note);
  const Settings settings = recorded_settings(flags);
  std::optional<RunWriter> writer;
  SimulationHooks all = hooks;
  SavePolicy policy(clock.now(), stop_asked);
  if (!out.empty()) {
    STARLING_ASSIGN(writer, RunWriter::begin_or_resume(out, kProgram, experiment, settings));
    if (saves(flags)) {
      all.checkpoints =
          SimulationCheckpoints{.file = RunWriter::checkpoint_in(out),
                                .identity = identity_of(experiment, settings, STARLING_VERSION),
                                .now = [&](TimePoint now) { return policy.at(now); },
                                .saved = [&](Duration took) { policy.saved(clock.now(), took); }};
    }
  }
  all.on_resume = [&](std::uint64_t step) {
    if (step > 0) log.info("goes on after step {}", step);
    if (hooks.on_resume) hooks.on_resume(step);
  };
  Result<void> written;
  all.on_measurement = [&](const Measurement& measurement) {
    if (hooks.on_measurement) hooks.on_measurement(measurement);
    if (writer && written) written = writer->write(measurement);
  };
  auto simulated = simulate(experiment, flags.threads, clock, all, simulated_by(flags));
  // A full disk is no failure of the run. The error itself matters more than that it is written.
  if (writer && !simulated && simulated.error().kind() == ErrorKind::kRejected &&
      simulated.error().code() != "stopped") {
    (void)writer->fail(simulated.error());
  }
  STARLING_ASSIGN(SimulationResult result, std::move(simulated));
  if (!written) return written.error();
  if (writer) {
    STARLING_TRY(writer->finish(kProgram, experiment, result, settings));
  }
  return result;
}

// --- one run -------------------------------------------------------------------------------------

// Where all are there: liars are not measured.
std::uint64_t measured_nodes(const NetOptions& options) {
  const bool lie = options.attack.kind != "none";
  return options.topology.nodes - (lie ? static_cast<std::uint64_t>(options.attack.nodes) : 0);
}

Result<SimulationResult> run_with_progress(const SimulateFlags& flags, CommandContext& context) {
  const std::uint64_t steps = flags.options.run.steps;
  const telemetry::Terminal terminal = telemetry::detect_terminal(STDERR_FILENO, std::getenv);
  telemetry::Progress progress(context.err, context.clock, terminal, steps, {.unit = "steps"});
  telemetry::ProgressLog log(progress);
  struct Beginning {
    TimePoint at;
    std::uint64_t node_steps = 0;  // before it, where a run is gone on with
  };
  std::optional<Beginning> beginning;
  std::optional<std::uint64_t> said_until;  // by the command that was stopped
  SimulationHooks hooks;
  hooks.on_resume = [&](std::uint64_t step) { said_until = step; };
  hooks.on_measurement = [&](const Measurement& measurement) {
    if (said_until && measurement.step <= *said_until) return;
    const std::string line =
        describe(measurement, steps, measured_nodes(flags.options), " virtual");
    const std::lock_guard lock(log.mutex());
    progress.print(telemetry::leading_facts(line, terminal.line_max));
  };
  hooks.on_progress = [&](const Totals& totals) {
    const std::lock_guard lock(log.mutex());
    if (!beginning) {
      beginning = {.at = context.clock.now(), .node_steps = totals.node_steps};
      return progress.update(totals.step, "");
    }
    const double seconds = to_seconds(context.clock.now() - beginning->at);
    const auto steps_made = static_cast<double>(totals.node_steps - beginning->node_steps);
    progress.update(totals.step, fmt::format("{:.0f} node-steps/s", steps_made / seconds));
  };
  using Note = telemetry::InterruptNote;
  Note note(saves(flags) ? Note::On::kAsk : Note::On::kEnd);
  if (flags.real_protocol) {
    note.set(
        fmt::format("{}stopped: a simulation of whole peers saves nothing, and the same command "
                    "begins it again\n",
                    terminal.interactive ? "\r\x1b[K" : ""));
  }
  auto result = run_network(
      flags, flags.out, hooks, [&] { return note.asked(); }, log, context.clock);
  if (!result && result.error().code() == "stopped" && note.asked()) {
    note.set(
        fmt::format("{}{}\n", terminal.interactive ? "\r\x1b[K" : "", result.error().message()));
    note.end();
  }
  return result;
}

Result<void> run_once(const SimulateFlags& flags, CommandContext& context) {
  for (const std::string& sentence : warnings(flags.options)) {
    context.err << "warning: " << sentence << std::endl;
  }
  STARLING_ASSIGN(const SimulationResult result, run_with_progress(flags, context));
  if (flags.format == config::OutputFormat::kJson) {
    context.out << boost::json::serialize(result_to_json(result)) << "\n";
  } else {
    print_summary(result,
                  {.nodes = flags.options.topology.nodes,
                   .time = " of virtual time",
                   .threads = flags.threads,
                   .out = flags.out,
                   .terminal = context.terminal},
                  context.out);
  }
  return {};
}

// --- a study -------------------------------------------------------------------------------------

std::string words_of(const Measurement& last) {
  if (last.eval_accuracy) return fmt::format("accuracy {:.4f}", *last.eval_accuracy);
  return fmt::format("consensus {:.3g}", last.consensus_distance);
}

Result<std::string> run_of_study(const SimulateFlags& flags, const std::filesystem::path& out,
                                 study::RunDisplay& display, const Clock& clock) {
  SimulationHooks hooks;
  hooks.on_progress = [&](const Totals& totals) {
    display.update(static_cast<double>(totals.step) / static_cast<double>(flags.options.run.steps));
  };
  STARLING_ASSIGN(
      const SimulationResult result,
      run_network(
          flags, out, hooks, [&] { return display.stop_asked(); }, display.log(), clock));
  return words_of(result.measurements.back());
}

Result<config::ExitCode> run_study(SimulateFlags& flags, CommandContext& context) {
  STARLING_ASSIGN(const study::Plan plan, study::make_plan(flags.study, flags.binder));
  const Settings base = flags.binder.settings();
  std::set<std::string> warned;
  data::ReadableDatasets datasets;
  const study::Program program{
      .name = kProgram,
      .configure = [&](const Settings& settings) -> Result<void> {
        STARLING_TRY(flags.binder.set(base));
        return flags.binder.set(settings);
      },
      .check = [&]() -> Result<void> {
        STARLING_TRY(check_trainer_flags(flags.binder, flags.trainer));
        for (std::string& sentence : warnings(flags.options)) {
          if (warned.insert(sentence).second) context.err << "warning: " << sentence << std::endl;
        }
        return check(flags.options, datasets, simulated_by(flags));
      },
      .settings = [&] { return recorded_settings(flags); },
      .run =
          [&](const std::filesystem::path& out, study::RunDisplay& display) {
            return run_of_study(flags, out, display, context.clock);
          },
      .saves = saves(flags),
      .files = RunWriter::files()};
  return study::run_study(plan, program, {.out = flags.out, .format = flags.format},
                          {.clock = context.clock,
                           .out = context.out,
                           .err = context.err,
                           .out_terminal = context.terminal,
                           .err_terminal = telemetry::detect_terminal(STDERR_FILENO, std::getenv)});
}

Result<config::ExitCode> run_command(SimulateFlags& flags, CommandContext& context) {
  STARLING_TRY(flags.binder.apply(flags.file));
  if (flags.workers > 0) flags.threads = flags.workers;
  if (flags.study.wanted()) return run_study(flags, context);
  STARLING_TRY(check_trainer_flags(flags.binder, flags.trainer));
  if (!flags.out.empty()) {
    STARLING_ASSIGN(const bool finished,
                    study::skip_finished(flags.out, recorded_settings(flags), flags.format,
                                         context.out, context.err));
    if (finished) return config::ExitCode::kOk;
  }
  STARLING_TRY(run_once(flags, context));
  return config::ExitCode::kOk;
}

}  // namespace

void add_simulate_command(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("simulate", "train on a simulated network of nodes, in one process");
  const auto flags = std::make_shared<SimulateFlags>();
  command->add_option("net", flags->file, "the network; every key of it is also a flag")
      ->type_name("NET.toml");
  command->add_option("--threads", flags->threads, "compute threads; results do not depend on it")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--trainer", flags->trainer, kTrainerHelp)->type_name("COMMAND");
  command
      ->add_flag("--real-protocol", flags->real_protocol,
                 "simulate whole peers with their protocol, as devices run it: slower, and with "
                 "what failure detection, catch-up and lost links cost")
      ->excludes("--trainer");
  command
      ->add_option("--workers", flags->workers,
                   "processes of the trainer at a time; without it as many as --threads")
      ->check(CLI::Range(1, 1024))
      ->needs("--trainer");
  command
      ->add_option("--out", flags->out,
                   "where metrics.jsonl, summary.json, the model and report.html are written, or "
                   "a directory for each run of a study")
      ->type_name("DIR");
  config::add_study_flags(*command, flags->study);
  config::add_format(*command, flags->format);
  flags->options.algorithm.own = context.algorithms;
  flags->options.bind(flags->binder);
  flags->binder.add_config(*command);
  flags->binder.add_flags(*command, kNetShortNames);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      const auto code = run_command(*flags, context);
      return code ? static_cast<int>(*code) : config::report(code.error(), context.err);
    };
  });
}

}  // namespace starling::gossip
