// SPDX-License-Identifier: Apache-2.0
// simulate JOB.toml: flags, progress and what is printed; of one run, or of a study of many.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <set>

#include "coordinator/commands/commands.h"
#include "coordinator/machine/job_warnings.h"
#include "coordinator/simulation/simulate.h"
#include "coordinator/simulation/simulation_output.h"
#include "core/base/decimal.h"
#include "core/base/escape_controls.h"
#include "core/config/binder.h"
#include "core/study/input_digests.h"
#include "core/study/study.h"
#include "core/telemetry/interrupt_note.h"
#include "core/telemetry/progress_log.h"
#include "core/telemetry/terminal_chart.h"

namespace starling::coordinator {

namespace {

constexpr int kClientsMax = 1'000'000;

// A flag that is no key of the job, but one of the study's and recorded with the run.
struct SimulatedClients {
  std::size_t& clients;
};

template <class V>
void describe(V& visit, SimulatedClients& o) {
  visit("clients", o.clients, FieldInfo{.help = "simulated clients", .min = 1, .max = kClientsMax});
}

// The network has a deadline too.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kShortNames = {
    {{"round.deadline", "deadline"}, {"strategy.name", "strategy"}}};

std::vector<double> accuracies(const boost::json::value& run) {
  std::vector<double> values;
  for (const boost::json::value& round : run.at("rounds").as_array()) {
    if (round.at("state") != "committed") continue;
    const boost::json::value& accuracy = round.at("eval_accuracy");
    values.push_back(accuracy.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                        : accuracy.to_number<double>());
  }
  return values;
}

void print_summary(const boost::json::value& run, const std::string& out, CommandContext& context) {
  const std::vector<double> curve = accuracies(run);
  if (std::any_of(curve.begin(), curve.end(), [](double a) { return a == a; })) {
    context.out << telemetry::line_chart(curve, context.terminal,
                                         {.title = "accuracy", .x_label = "round"});
  }
  if (!out.empty()) context.out << "written: " << out << "/run.json, models/ and report.html\n";
}

// Beside the bar.
std::string note_of(const Measured& found) {
  return fmt::format("{}{} {}", found.federated ? "held-out " : "",
                     found.accuracy ? "accuracy" : "loss",
                     decimal(found.accuracy.value_or(found.loss)));
}

struct SimulateFlags {
  config::Binder binder;
  Job job;
  WorldOptions world;
  SimulateOptions options;
  SimulatedClients clients{options.clients};
  bool says_clients = false;
  std::string job_file;
  std::string out;
  std::string replay;
  std::string trainer;
  unsigned workers = 0;
  config::StudyFlags study;
  config::OutputFormat format = config::OutputFormat::kText;
};

// What the user decided, as the flags are now.
Settings asked_settings(const SimulateFlags& flags) {
  Settings settings = flags.binder.settings();
  if (!flags.trainer.empty()) settings.emplace_back("trainer.command", flags.trainer);
  return settings;
}

// `log` must outlive the simulation.
SimulateOptions options_of(const SimulateFlags& flags, Log& log) {
  SimulateOptions options = flags.options;
  options.log = &log;
  options.asked = asked_settings(flags);
  if (flags.binder.says("network") || flags.binder.says("nodes")) options.world = flags.world;
  if (!flags.replay.empty()) options.replay = flags.replay;
  if (!flags.trainer.empty()) {
    options.trainer = client::trainer_of(flags.trainer);
    if (flags.workers > 0) options.threads = flags.workers;
  }
  return options;
}

std::vector<std::string> warnings_of(const SimulateFlags& flags) {
  // An invalid job is refused by the simulation itself.
  std::vector<std::string> warnings = warnings_of_world(flags.job, flags.world);
  Job job = flags.job;
  if (!job.validate(*flags.options.strategies)) return warnings;
  // It needs no evaluation data set here, and the simulation says so where it finds no rows.
  if (evaluates_held_out(job)) job.evaluate.every = EvaluateOptions().every;
  std::ranges::move(warnings_of_keys(job, *flags.options.strategies), std::back_inserter(warnings));
  return warnings;
}

// What is not saved is stopped at once.
bool saves(const SimulateFlags& flags) {
  NullLog no_log;
  return !flags.out.empty() && !cannot_go_on(flags.job, options_of(flags, no_log));
}

// --- one run -------------------------------------------------------------------------------------

// A round is not saved in its middle. Whether the run goes on from its end or begins again is said
// there: a trainer with private tensors is known once it runs.
std::string stopping_note(const telemetry::Terminal& terminal) {
  return fmt::format("{}stopping at the end of the round; Ctrl-C again stops at once\n",
                     terminal.interactive ? "\r\x1b[K" : "");
}

Result<SimulationResult> simulate_with_progress(const SimulateFlags& flags,
                                                CommandContext& context) {
  const telemetry::Terminal terminal = telemetry::detect_terminal(STDERR_FILENO, std::getenv);
  telemetry::Progress progress(context.err, context.clock, terminal,
                               static_cast<std::uint64_t>(flags.job.job.rounds));
  telemetry::ProgressLog log(progress);
  FederationSimulator::Hooks hooks;
  hooks.on_line = [&](const std::string& line) {
    if (line.starts_with("run failed: ")) return;  // the error says it at the end
    log.write(LogLevel::kInfo, telemetry::leading_facts(line, terminal.line_max));
  };
  hooks.on_round = [&](const RoundSummary& summary, const RoundOutcome& outcome) {
    const std::lock_guard lock(log.mutex());
    progress.update(summary.round, outcome.measured ? note_of(*outcome.measured) : std::string());
  };
  SimulateOptions options = options_of(flags, log);
  if (!flags.out.empty()) {
    options.out = flags.out;
    options.inputs = study::InputDigests().of(options.asked);
  }
  using Note = telemetry::InterruptNote;
  const bool is_saved = saves(flags);
  Note note(is_saved ? Note::On::kAsk : Note::On::kEnd);
  note.set_asking(stopping_note(terminal));
  SavePolicy policy(context.clock.now(), [&] { return note.asked(); });
  if (is_saved) options.saves = &policy;
  auto result = simulate(flags.job, options, context.clock, std::move(hooks));
  if (!result && result.error().code() == "stopped" && note.asked()) {
    note.set(
        fmt::format("{}{}\n", terminal.interactive ? "\r\x1b[K" : "", result.error().message()));
    note.end();
  }
  return result;
}

int run_once(const SimulateFlags& flags, CommandContext& context) {
  if (!flags.out.empty() && flags.replay.empty()) {
    const auto finished = study::skip_finished(flags.out, asked_settings(flags), flags.format,
                                               context.out, context.err);
    if (!finished) return config::report(finished.error(), context.err);
    if (*finished) return 0;
  }
  for (const std::string& sentence : warnings_of(flags)) {
    context.err << "warning: " << sentence << std::endl;
  }
  const auto result = simulate_with_progress(flags, context);
  if (!result) return config::report(result.error(), context.err);
  if (!result->warning.empty())
    context.err << "warning: " << escape_controls(result->warning) << "\n";
  if (flags.format == config::OutputFormat::kJson) {
    context.out << boost::json::serialize(result->run) << "\n";
  } else {
    print_summary(result->run, flags.out, context);
  }
  return result->error ? config::report(*result->error, context.err) : 0;
}

// --- a study -------------------------------------------------------------------------------------

// Of the last round with an evaluation.
std::string words_of(const boost::json::value& run) {
  const std::vector<double> curve = accuracies(run);
  const auto last = std::find_if(curve.rbegin(), curve.rend(), [](double a) { return a == a; });
  if (last != curve.rend()) return fmt::format("accuracy {:.4f}", *last);
  return fmt::format("{} rounds", curve.size());
}

Result<std::string> run_of_study(const SimulateFlags& flags, const std::filesystem::path& out,
                                 study::RunDisplay& display, const Clock& clock) {
  SimulateOptions options = options_of(flags, display.log());
  options.out = out;
  options.inputs = study::InputDigests().of(options.asked);
  SavePolicy policy(clock.now(), [&] { return display.stop_asked(); });
  options.saves = &policy;
  FederationSimulator::Hooks hooks;
  hooks.on_round = [&](const RoundSummary& summary, const RoundOutcome&) {
    display.update(static_cast<double>(summary.round) / static_cast<double>(flags.job.job.rounds));
  };
  STARLING_ASSIGN(const SimulationResult result,
                  simulate(flags.job, options, clock, std::move(hooks)));
  if (result.error) return *result.error;
  return words_of(result.run);
}

Result<config::ExitCode> run_study(SimulateFlags& flags, CommandContext& context) {
  if (!flags.replay.empty()) {
    return config::usage_error("--replay repeats one run: leave out --seeds and --sweep");
  }
  STARLING_ASSIGN(const study::Plan plan, study::make_plan(flags.study, flags.binder));
  const Settings base = flags.binder.settings();
  std::set<std::string> warned;
  NullLog no_log;
  data::ReadableDatasets datasets;
  const study::Program program{
      .name = kSimulateProgram,
      .configure = [&](const Settings& settings) -> Result<void> {
        STARLING_TRY(flags.binder.set(base));
        return flags.binder.set(settings);
      },
      .check = [&]() -> Result<void> {
        for (std::string& sentence : warnings_of(flags)) {
          if (warned.insert(sentence).second) context.err << "warning: " << sentence << std::endl;
        }
        STARLING_TRY(check_simulation(flags.job, options_of(flags, no_log)));
        return check_data(flags.job, datasets);
      },
      .settings = [&] { return asked_settings(flags); },
      .run =
          [&](const std::filesystem::path& out, study::RunDisplay& display) {
            return run_of_study(flags, out, display, context.clock);
          },
      .saves = true,
      .stopping = stopping_note(telemetry::detect_terminal(STDERR_FILENO, std::getenv)),
      .files = SimulationOutput::files()};
  return study::run_study(plan, program, {.out = flags.out, .format = flags.format},
                          {.clock = context.clock,
                           .out = context.out,
                           .err = context.err,
                           .out_terminal = context.terminal,
                           .err_terminal = telemetry::detect_terminal(STDERR_FILENO, std::getenv)});
}

int run_simulation(SimulateFlags& flags, CommandContext& context) {
  if (const auto applied = flags.binder.apply(flags.job_file); !applied) {
    return config::report(applied, context.err);
  }
  flags.binder.bind("", flags.clients);
  if (flags.says_clients) flags.binder.note_flag("clients");
  if (!flags.study.wanted()) return run_once(flags, context);
  const auto code = run_study(flags, context);
  return code ? static_cast<int>(*code) : config::report(code.error(), context.err);
}

}  // namespace

void add_simulate_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "simulate", "run a job on simulated clients in one process, without sockets");
  const auto flags = std::make_shared<SimulateFlags>();
  flags->options.threads = available_processors();
  flags->job.checkpoint.keep = 0;  // a researcher keeps every round unless the job says less
  command->add_option("job", flags->job_file, "the job; every key of it is also a flag")
      ->required()
      ->type_name("JOB.toml");
  command
      ->add_option("--clients", flags->options.clients, "simulated clients, client-1 to client-N")
      ->check(CLI::Range(1, kClientsMax))
      ->each([flags](const std::string&) { flags->says_clients = true; })
      ->capture_default_str();
  command
      ->add_option("--threads", flags->options.threads,
                   "compute threads; results do not depend on it")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option(
          "--trainer", flags->trainer,
          "with model.kind = \"external\": the command of your own trainer, as in "
          "\"python3 train.py\" (one program and its arguments; \"env A=1 python3 train.py\" "
          "sets a variable); all clients share its processes")
      ->type_name("COMMAND");
  command
      ->add_option("--workers", flags->workers,
                   "processes of the trainer at a time; without it as many as --threads")
      ->check(CLI::Range(1, 1024))
      ->needs("--trainer");
  command
      ->add_option("--out", flags->out,
                   "where run.json, models/ and report.html are written, or a directory for each "
                   "run of a study")
      ->type_name("DIR");
  config::add_study_flags(*command, flags->study);
  command
      ->add_option("--replay", flags->replay,
                   "a recorded run (`run show ID --format json`): the same contributors")
      ->type_name("RUN.json");
  config::add_format(*command, flags->format);
  flags->job.bind(flags->binder);
  flags->world.bind(flags->binder);
  flags->binder.add_flags(*command, kShortNames);
  command->callback([flags, &context] {
    context.run = [flags, &context] { return run_simulation(*flags, context); };
  });
}

}  // namespace starling::coordinator
