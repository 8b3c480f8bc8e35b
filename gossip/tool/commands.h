// SPDX-License-Identifier: Apache-2.0
// The commands of starling-gossip: each adds itself to the program and says what to run when it was
// named.
#pragma once

#include <functional>
#include <iosfwd>

#include "core/base/clock.h"
#include "core/telemetry/terminal.h"

namespace CLI {
class App;
}

namespace starling::gossip {

class AlgorithmCatalogue;

// What main lends to the commands.
struct CommandContext {
  const Clock& clock;
  std::ostream& out;
  std::ostream& err;
  std::function<int()> run;           // set by the command that was named
  telemetry::Terminal terminal = {};  // that `out` is shown on
  // Algorithms and topologies beside the built-in ones, for `simulate` and `topology`.
  const AlgorithmCatalogue* algorithms = nullptr;
};

void add_simulate_command(CLI::App& app, CommandContext& context);
void add_launch_command(CLI::App& app, CommandContext& context);
void add_report_command(CLI::App& app, CommandContext& context);
void add_topology_command(CLI::App& app, CommandContext& context);

}  // namespace starling::gossip
