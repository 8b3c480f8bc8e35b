// SPDX-License-Identifier: Apache-2.0
// starling-coordinator: the operator's program.
#include <unistd.h>

#include <CLI/App.hpp>
#include <cstdlib>
#include <iostream>

#include "coordinator/commands.h"
#include "core/base/core_dumps.h"
#include "core/telemetry/wrapped_stream.h"

int main(int argc, char** argv) {
  namespace coordinator = starling::coordinator;
  starling::forbid_core_dumps();
  const starling::SystemClock clock;
  coordinator::CommandContext context{
      clock,
      std::cout,
      std::cerr,
      {},
      starling::telemetry::detect_terminal(STDOUT_FILENO, std::getenv)};
  const starling::telemetry::WrappedStream out(std::cout, context.terminal.line_max);
  const starling::telemetry::WrappedStream err(
      std::cerr, starling::telemetry::detect_terminal(STDERR_FILENO, std::getenv).line_max);
  CLI::App app(
      "Coordinates federated training: devices train where their data is, and only "
      "updates travel.",
      "starling-coordinator");
  starling::config::set_up(app, STARLING_VERSION);
  coordinator::add_commands(app, context);
  const auto done =
      starling::config::parse(app, {argv, static_cast<std::size_t>(argc)}, std::cout, std::cerr);
  if (done) return *done;
  return context.run();
}
