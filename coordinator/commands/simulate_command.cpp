// SPDX-License-Identifier: Apache-2.0
// simulate JOB.toml: flags, progress and what is printed.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdlib>
#include <limits>
#include <ostream>

#include "coordinator/commands/commands.h"
#include "coordinator/machine/job_warnings.h"
#include "coordinator/simulation/simulate.h"
#include "core/base/decimal.h"
#include "core/base/escape_controls.h"
#include "core/config/binder.h"
#include "core/telemetry/progress_log.h"
#include "core/telemetry/terminal_chart.h"

namespace starling::coordinator {
namespace {

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

void print_summary(const boost::json::value& run, const SimulateOptions& options,
                   CommandContext& context) {
  const std::vector<double> curve = accuracies(run);
  if (std::any_of(curve.begin(), curve.end(), [](double a) { return a == a; })) {
    context.out << telemetry::line_chart(curve, context.terminal,
                                         {.title = "accuracy", .x_label = "round"});
  }
  if (options.out)
    context.out << "written: " << options.out->string() << "/run.json, models/ and report.html\n";
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
  std::string job_file;
  std::string out;
  std::string replay;
  std::string trainer;
  unsigned workers = 0;
  config::OutputFormat format = config::OutputFormat::kText;
};

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
  SimulateOptions options = flags.options;
  options.log = &log;
  if (!flags.trainer.empty()) {
    options.trainer = client::trainer_of(flags.trainer);
    if (flags.workers > 0) options.threads = flags.workers;
  }
  return simulate(flags.job, options, context.clock, std::move(hooks));
}

int run_simulation(SimulateFlags& flags, CommandContext& context) {
  if (const auto applied = flags.binder.apply(flags.job_file); !applied) {
    return config::report(applied, context.err);
  }
  if (flags.binder.says("network") || flags.binder.says("nodes")) {
    flags.options.world = flags.world;
  }
  if (!flags.out.empty()) flags.options.out = flags.out;
  if (!flags.replay.empty()) flags.options.replay = flags.replay;
  // An invalid job is refused by the simulation itself.
  std::vector<std::string> warnings = warnings_of_world(flags.job, flags.world);
  if (flags.job.validate(*flags.options.strategies)) {
    std::ranges::move(warnings_of_keys(flags.job, *flags.options.strategies),
                      std::back_inserter(warnings));
  }
  for (const std::string& sentence : warnings) {
    context.err << "warning: " << sentence << std::endl;
  }
  const auto result = simulate_with_progress(flags, context);
  if (!result) return config::report(result.error(), context.err);
  if (!result->warning.empty())
    context.err << "warning: " << escape_controls(result->warning) << "\n";
  if (flags.format == config::OutputFormat::kJson) {
    context.out << boost::json::serialize(result->run) << "\n";
  } else {
    print_summary(result->run, flags.options, context);
  }
  return result->error ? config::report(*result->error, context.err) : 0;
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
      ->check(CLI::Range(1, 1'000'000))
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
  command->add_option("--out", flags->out, "where run.json, models/ and report.html are written")
      ->type_name("DIR");
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
