// SPDX-License-Identifier: Apache-2.0
// starling-gossip: the researcher's program.
#include <CLI/App.hpp>
#include <cstdlib>
#include <iostream>

#include "core/base/core_dumps.h"
#include "core/config/command_line.h"
#include "core/telemetry/wrapped_stream.h"
#include "gossip/tool/commands.h"

int main(int argc, char** argv) {
  namespace gossip = starling::gossip;
  starling::forbid_core_dumps();
  const starling::SystemClock clock;
  const starling::telemetry::ProgramOutput output(std::getenv);
  gossip::CommandContext context{clock, std::cout, std::cerr, {}, output.terminal()};
  CLI::App app("Training without a coordinator: topologies, algorithms and simulated networks.",
               "starling-gossip");
  starling::config::set_up(app, STARLING_VERSION);
  app.require_subcommand(1);
  gossip::add_simulate_command(app, context);
  gossip::add_launch_command(app, context);
  gossip::add_report_command(app, context);
  gossip::add_topology_command(app, context);
  const auto done =
      starling::config::parse(app, {argv, static_cast<std::size_t>(argc)}, std::cout, std::cerr);
  if (done) return *done;
  return starling::config::run(context.run, std::cerr);
}
