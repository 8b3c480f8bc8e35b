// SPDX-License-Identifier: Apache-2.0
// starling-coordinator: the operator's program.
#include <CLI/App.hpp>
#include <cstdlib>
#include <iostream>

#include "coordinator/commands/commands.h"
#include "core/base/core_dumps.h"
#include "core/identity/join_token.h"
#include "core/telemetry/wrapped_stream.h"

int main(int argc, char** argv) {
  namespace coordinator = starling::coordinator;
  starling::forbid_core_dumps();
  const starling::SystemClock clock;
  const starling::telemetry::ProgramOutput output(std::getenv);
  coordinator::CommandContext context{clock, std::cout, std::cerr, {}, output.terminal()};
  CLI::App app(
      "Coordinates federated training: devices train where their data is, and only "
      "updates travel.",
      "starling-coordinator");
  starling::config::set_up(app, STARLING_VERSION);
  coordinator::add_commands(app, context);
  const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
  const auto done = starling::config::parse(app, arguments, std::cout, std::cerr);
  starling::identity::hide_join_tokens(arguments);
  if (done) return *done;
  return starling::config::run(context.run, std::cerr);
}
