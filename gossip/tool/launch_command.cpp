// SPDX-License-Identifier: Apache-2.0
// launch [NET.toml]: the network of `simulate` as real processes; flags, the live table and what is
// printed.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <ostream>

#include "core/base/compute_pool.h"
#include "core/base/durable_file.h"
#include "core/base/escape_controls.h"
#include "core/config/command_line.h"
#include "gossip/launch/launcher.h"
#include "gossip/simulation/experiment.h"
#include "gossip/tool/commands.h"
#include "gossip/tool/run_text.h"
#include "gossip/tool/run_writer.h"
#include "gossip/tool/trainer_flag.h"

namespace starling::gossip {
namespace {

constexpr std::size_t kEventsBytesMax = 1 << 20;

struct LaunchFlags {
  config::Binder binder;
  LaunchConfig config;
  std::string file;
  std::string out;
  std::string trainer;
  unsigned threads = available_processors();
  bool print_events = false;
  config::OutputFormat format = config::OutputFormat::kText;
};

// What the issuer has to complain about, above the table.
class LineLog final : public Log {
 public:
  explicit LineLog(LiveTable& table) : table_(table) {}
  void write(LogLevel level, std::string_view line) override {
    if (level >= LogLevel::kWarning) table_.print(escape_controls(line));
  }

 private:
  LiveTable& table_;
};

Result<std::filesystem::path> find_edge(const LaunchOptions& options) {
  std::error_code error;
  std::filesystem::path edge = options.edge;
  if (edge.empty()) {
    edge = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "starling-edge";
  }
  if (::access(edge.c_str(), X_OK) == 0) return std::filesystem::absolute(edge, error);
  return wrong_setting(
      "launch-options",
      fmt::format("{} cannot be run; name the peers' program with --edge", edge.string()));
}

Result<FaultScript> make_script(const LaunchConfig& config, FaultScript splits) {
  const Node nodes = config.net.topology.nodes;
  const std::uint64_t seed = config.net.run.seed;
  STARLING_ASSIGN(FaultScript script, draw_faults(config.chaos, nodes, seed));
  script = merge(std::move(splits), std::move(script));
  if (config.launch.events.empty()) return script;
  STARLING_ASSIGN(const std::string text, read_text_file(config.launch.events, kEventsBytesMax));
  STARLING_ASSIGN(FaultScript read, read_fault_script(text, config.launch.events, nodes, seed));
  return merge(std::move(script), std::move(read));
}

void print_events(const FaultScript& script, config::OutputFormat format, std::ostream& out) {
  boost::json::array all;
  for (const FaultEvent& event : script) {
    if (format == config::OutputFormat::kText) out << to_text(event) << "\n";
    boost::json::array nodes;
    for (const Node node : event.nodes) nodes.emplace_back(node + 1);
    all.push_back(boost::json::object{
        {"name", event.name},
        {"kind", kFaultKinds[static_cast<std::size_t>(event.kind)]},
        {"at_seconds", event.at ? boost::json::value(to_seconds(*event.at)) : nullptr},
        {"at_step", event.at ? boost::json::value(nullptr) : boost::json::value(event.step)},
        {"lasts_seconds", to_seconds(event.lasts)},
        {"nodes", std::move(nodes)},
        {"text", to_text(event)}});
  }
  if (format == config::OutputFormat::kJson) out << boost::json::serialize(all) << "\n";
}

Result<LaunchResult> run_with_table(const LaunchFlags& flags, const LaunchRequest& request,
                                    std::optional<RunWriter>& writer, CommandContext& context) {
  const telemetry::Terminal terminal = telemetry::detect_terminal(STDERR_FILENO, std::getenv);
  LiveTable table(context.err, context.clock, terminal);
  LineLog log(table);
  Result<void> written;
  LaunchHooks hooks;
  hooks.on_measurement = [&](const Measurement& measurement) {
    const std::string line =
        describe(measurement, flags.config.net.run.steps, flags.config.net.topology.nodes, "");
    table.print(telemetry::leading_facts(line, terminal.line_max));
    if (writer && written) written = writer->write(measurement);
  };
  hooks.on_peers = [&](std::span<const PeerRow> rows) { table.show(rows); };
  hooks.on_line = [&](const std::string& line) { table.print(line); };
  auto result = launch(request, context.clock, log, hooks);
  table.finish();
  if (result && !written) return written.error();
  return result;
}

Result<void> report_run(const LaunchFlags& flags, const Experiment& experiment,
                        const SimulationResult& result, std::optional<RunWriter>& writer,
                        CommandContext& context) {
  Result<void> kept;
  if (writer) {
    kept = writer->finish("starling-gossip launch", experiment, result,
                          settings_of_run(flags.binder, flags.trainer));
  }
  if (flags.format == config::OutputFormat::kJson) {
    context.out << boost::json::serialize(result_to_json(result)) << "\n";
  } else {
    print_summary(result,
                  {.nodes = experiment.nodes(),
                   .threads = flags.threads,
                   .out = kept ? flags.out : "",
                   .terminal = context.terminal},
                  context.out);
  }
  if (kept) return {};
  // Real processes do not go on where they were.
  return rejected("result-not-kept",
                  fmt::format("{}; the models are lost, metrics.jsonl and logs are in {}: see to "
                              "that, and launch again with a new directory",
                              kept.error().message(), flags.out));
}

Result<void> run_launch(LaunchFlags& flags, CommandContext& context) {
  STARLING_TRY(flags.binder.apply(flags.file));
  const LaunchConfig& config = flags.config;
  STARLING_TRY(check_launchable(flags.binder, config.net));
  NetworkFaults network;
  if (flags.binder.says("network")) {
    STARLING_ASSIGN(network, network_faults(config.net));
  }
  STARLING_ASSIGN(FaultScript script, make_script(config, std::move(network.splits)));
  if (flags.print_events) {
    print_events(script, flags.format, context.out);
    return {};
  }
  STARLING_TRY(check_trainer_flags(flags.binder, flags.trainer));
  const std::unique_ptr<Log> log = make_stderr_log(LogLevel::kWarning);
  std::shared_ptr<const NetworkTrainers> trainers;
  if (!flags.trainer.empty()) {
    flags.threads = 1;  // one process evaluates, beside one a peer that trains
    client::TrainerOptions trainer = client::trainer_of(flags.trainer);
    trainer.task_deadline = config.launch.patience;  // an evaluation keeps the launcher waiting
    STARLING_ASSIGN(trainers, NetworkTrainers::start(config.net, trainer, flags.threads, *log));
  }
  STARLING_ASSIGN(const Experiment experiment,
                  prepare(config.net, std::move(trainers), Simulated::kPeers));
  for (const std::string& sentence : warnings(config.net)) {
    context.err << "warning: " << sentence << std::endl;
  }
  const std::string note = evaluation_note(experiment);
  if (!note.empty()) context.err << note << std::endl;
  const bool on_links = std::ranges::any_of(script, &FaultEvent::on_links);
  LaunchRequest request{.experiment = experiment,
                        .options = config.launch,
                        .script = std::move(script),
                        .links = std::move(network.links),
                        .threads = flags.threads};
  request.proxied = config.launch.proxy || on_links || !request.links.empty();
  STARLING_ASSIGN(request.edge, find_edge(config.launch));
  std::optional<RunWriter> writer;
  if (!flags.out.empty()) {
    STARLING_ASSIGN(writer, RunWriter::make(flags.out));
    request.logs = std::filesystem::path(flags.out) / "logs";
  }
  STARLING_ASSIGN(const LaunchResult run, run_with_table(flags, request, writer, context));
  STARLING_TRY(report_run(flags, experiment, run.result, writer, context));
  if (run.unfinished) return *run.unfinished;
  return {};
}

}  // namespace

void add_launch_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "launch", "train on a network of real starling-edge processes on this machine");
  const auto flags = std::make_shared<LaunchFlags>();
  command->add_option("net", flags->file, "the network; every key of it is also a flag")
      ->type_name("NET.toml");
  command->add_option("--threads", flags->threads, "compute threads of the evaluations")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--trainer", flags->trainer, kTrainerHelp)->type_name("COMMAND");
  command
      ->add_option("--out", flags->out,
                   "where metrics.jsonl, summary.json, the model, report.html and the peers' logs "
                   "are written")
      ->type_name("DIR");
  command->add_flag("--print-events", flags->print_events,
                    "show what would go wrong and when, and run nothing");
  config::add_format(*command, flags->format);
  flags->config.net.algorithm.own = context.algorithms;  // to be refused by name
  flags->config.bind(flags->binder);
  flags->binder.add_config(*command);
  flags->binder.add_flags(*command, kNetShortNames);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return config::report(run_launch(*flags, context), context.err);
    };
  });
}

}  // namespace starling::gossip
