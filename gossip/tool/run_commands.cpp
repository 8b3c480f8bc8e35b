// SPDX-License-Identifier: Apache-2.0
#include "gossip/tool/run_commands.h"

#include <CLI/App.hpp>
#include <cstdlib>
#include <iostream>

#include "core/base/core_dumps.h"
#include "core/config/command_line.h"
#include "core/telemetry/wrapped_stream.h"
#include "gossip/tool/commands.h"

namespace starling::gossip {

int run_commands(int argc, char** argv, const AlgorithmCatalogue& algorithms) {
  forbid_core_dumps();
  const SystemClock clock;
  const telemetry::ProgramOutput output(std::getenv);
  CommandContext context{clock, std::cout, std::cerr, {}, output.terminal(), &algorithms};
  CLI::App app("Training without a coordinator: topologies, algorithms and simulated networks.",
               "starling-gossip");
  config::set_up(app, STARLING_VERSION);
  app.require_subcommand(1);
  add_simulate_command(app, context);
  add_launch_command(app, context);
  add_report_command(app, context);
  add_topology_command(app, context);
  const auto done =
      config::parse(app, {argv, static_cast<std::size_t>(argc)}, std::cout, std::cerr);
  if (done) return *done;
  return config::run(context.run, std::cerr);
}

}  // namespace starling::gossip
