// SPDX-License-Identifier: Apache-2.0
// simulate [NET.toml]: flags, progress and what is printed.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdlib>
#include <ostream>

#include "core/base/compute_pool.h"
#include "core/config/binder.h"
#include "core/config/command_line.h"
#include "core/config/needs.h"
#include "core/telemetry/progress_log.h"
#include "gossip/tool/commands.h"
#include "gossip/tool/run_text.h"
#include "gossip/tool/run_writer.h"
#include "gossip/tool/trainer_flag.h"

namespace starling::gossip {
namespace {

struct SimulateFlags {
  config::Binder binder;
  NetOptions options;
  std::string file;
  std::string out;
  std::string trainer;
  unsigned workers = 0;
  bool real_protocol = false;
  unsigned threads = available_processors();
  config::OutputFormat format = config::OutputFormat::kText;
};

Result<SimulationResult> run_with_progress(const SimulateFlags& flags, const Experiment& experiment,
                                           telemetry::Progress& progress, std::mutex& mutex,
                                           std::optional<RunWriter>& writer,
                                           CommandContext& context) {
  const std::uint64_t steps = flags.options.run.steps;
  const telemetry::Terminal terminal = telemetry::detect_terminal(STDERR_FILENO, std::getenv);
  const TimePoint started = context.clock.now();
  Result<void> written;
  SimulationHooks hooks;
  hooks.on_measurement = [&](const Measurement& measurement) {
    const std::string line = describe(measurement, steps, " virtual");
    const std::lock_guard lock(mutex);
    progress.print(telemetry::leading_facts(line, terminal.line_max));
    if (writer && written) written = writer->write(measurement);
  };
  hooks.on_progress = [&](const Totals& totals) {
    const double seconds = to_seconds(context.clock.now() - started);
    const std::lock_guard lock(mutex);
    progress.update(totals.step, fmt::format("{:.0f} node-steps/s",
                                             static_cast<double>(totals.node_steps) / seconds));
  };
  STARLING_ASSIGN(SimulationResult result,
                  simulate(experiment, flags.threads, context.clock, hooks,
                           flags.real_protocol ? Simulated::kPeers : Simulated::kRecurrence));
  if (!written) return written.error();
  return result;
}

Result<std::shared_ptr<const NetworkTrainers>> start_trainers(const SimulateFlags& flags,
                                                              Log& log) {
  if (flags.trainer.empty()) return std::shared_ptr<const NetworkTrainers>();
  return NetworkTrainers::start(flags.options, client::trainer_of(flags.trainer), flags.threads,
                                log);
}

Result<void> run_simulation(SimulateFlags& flags, CommandContext& context) {
  STARLING_TRY(flags.binder.apply(flags.file));
  STARLING_TRY(check_trainer_flags(flags.binder, flags.trainer));
  if (flags.workers > 0) flags.threads = flags.workers;
  telemetry::Progress progress(context.err, context.clock,
                               telemetry::detect_terminal(STDERR_FILENO, std::getenv),
                               flags.options.run.steps, {.unit = "steps"});
  telemetry::ProgressLog log(progress);
  STARLING_ASSIGN(auto trainers, start_trainers(flags, log));
  STARLING_ASSIGN(const Experiment experiment, prepare(flags.options, std::move(trainers)));
  NetOptions defaults;
  config::Binder of_defaults;
  defaults.bind(of_defaults);
  for (const std::string& sentence : config::unmet_needs(
           config::needs_of_simulation(), flags.binder.settings(), of_defaults.settings())) {
    context.err << "warning: " << sentence << std::endl;
  }
  std::optional<RunWriter> writer;
  if (!flags.out.empty()) {
    STARLING_ASSIGN(writer, RunWriter::make(flags.out));
  }
  STARLING_ASSIGN(const SimulationResult result,
                  run_with_progress(flags, experiment, progress, log.mutex(), writer, context));
  if (writer)
    STARLING_TRY(
        writer->finish("starling-gossip simulate", experiment, result, flags.binder.settings()));
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
                   "where metrics.jsonl, summary.json, the model and report.html are written")
      ->type_name("DIR");
  config::add_format(*command, flags->format);
  flags->options.bind(flags->binder);
  flags->binder.add_config(*command);
  flags->binder.add_flags(*command, kNetShortNames);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return config::report(run_simulation(*flags, context), context.err);
    };
  });
}

}  // namespace starling::gossip
