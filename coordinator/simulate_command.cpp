// SPDX-License-Identifier: Apache-2.0
#include "coordinator/simulate_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdlib>
#include <limits>
#include <ostream>

#include "coordinator/simulate.h"
#include "core/config/command_line.h"
#include "core/telemetry/progress.h"
#include "core/telemetry/terminal_chart.h"

namespace starling::coordinator {
namespace {

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
                   std::ostream& out) {
  const std::vector<double> curve = accuracies(run);
  if (std::any_of(curve.begin(), curve.end(), [](double a) { return a == a; })) {
    out << telemetry::line_chart(curve, telemetry::detect_terminal(STDOUT_FILENO, std::getenv),
                                 {.title = "accuracy", .x_label = "round"});
  }
  if (options.out) out << "written: " << options.out->string() << "/run.json and models/\n";
}

}  // namespace

struct SimulateCommand::Impl {
  CLI::App* app = nullptr;
  config::Binder binder;
  Job job;
  SimulateOptions options;
  std::string job_file;
  std::string out;
  std::string replay;
  config::OutputFormat format = config::OutputFormat::kText;

  Result<SimulationResult> simulate_with_progress(std::ostream& err) {
    const SystemClock clock;
    const telemetry::Terminal terminal = telemetry::detect_terminal(STDERR_FILENO, std::getenv);
    telemetry::Progress progress(err, clock, terminal, static_cast<std::uint64_t>(job.job.rounds));
    FederationSimulator::Hooks hooks;
    hooks.on_line = [&](const std::string& line) { progress.print(line); };
    hooks.on_round = [&](const RoundSummary& summary, const RoundOutcome& outcome) {
      const auto note = outcome.evaluation
                            ? fmt::format("accuracy {:.4f}", outcome.evaluation->accuracy)
                            : std::string();
      progress.update(summary.round, note);
    };
    return coordinator::simulate(job, options, clock, std::move(hooks));
  }
};

SimulateCommand::SimulateCommand(CLI::App& program) : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.app = program.add_subcommand(
      "simulate", "run a job on simulated clients in one process, without sockets");
  impl.app->add_option("JOB.toml", impl.job_file, "the job; every key is also a flag")->required();
  impl.app->add_option("--clients", impl.options.clients, "simulated clients: client-1 to client-N")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  impl.options.threads = available_processors();
  impl.app
      ->add_option("--threads", impl.options.threads,
                   "compute threads; results do not depend on it")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  impl.app->add_option("--out", impl.out, "directory for run.json and models/");
  impl.app->add_option("--replay", impl.replay,
                       "a recorded run.json (`run show --format json`): the same contributors");
  config::add_format(*impl.app, impl.format);
  impl.job.checkpoint.keep = 0;  // a researcher keeps every round unless the job says less
  impl.job.bind(impl.binder);
  impl.binder.add_flags(*impl.app);
}

SimulateCommand::~SimulateCommand() = default;

bool SimulateCommand::chosen() const { return impl_->app->parsed(); }

int SimulateCommand::run(std::ostream& out, std::ostream& err) {
  Impl& impl = *impl_;
  if (const auto applied = impl.binder.apply(impl.job_file); !applied) {
    return config::report(applied.error(), err);
  }
  if (!impl.out.empty()) impl.options.out = impl.out;
  if (!impl.replay.empty()) impl.options.replay = impl.replay;
  const auto result = impl.simulate_with_progress(err);
  if (!result) return config::report(result.error(), err);
  if (impl.format == config::OutputFormat::kJson) {
    out << boost::json::serialize(result->run) << "\n";
  } else {
    print_summary(result->run, impl.options, out);
  }
  return result->error ? config::report(*result->error, err) : 0;
}

}  // namespace starling::coordinator
