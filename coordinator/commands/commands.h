// SPDX-License-Identifier: Apache-2.0
// The commands of starling-coordinator: each group adds its own to the program and says what to
// run when it was named.
#pragma once

#include <boost/json/value.hpp>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "coordinator/commands/operator_client.h"
#include "core/base/clock.h"
#include "core/config/binder.h"
#include "core/config/command_line.h"
#include "core/telemetry/terminal.h"

namespace CLI {
class App;
}

namespace starling::coordinator {

// What main lends to the commands.
struct CommandContext {
  const Clock& clock;
  std::ostream& out;
  std::ostream& err;
  std::function<int()> run;           // set by the command that was named
  telemetry::Terminal terminal = {};  // that `out` is shown on
};

// All of them.
void add_commands(CLI::App& app, CommandContext& context);

void add_init_command(CLI::App& app, CommandContext& context);
void add_serve_command(CLI::App& app, CommandContext& context);
void add_join_command(CLI::App& app, CommandContext& context);
void add_token_commands(CLI::App& app, CommandContext& context);
void add_client_commands(CLI::App& app, CommandContext& context);
void add_run_commands(CLI::App& app, CommandContext& context);
void add_gossip_commands(CLI::App& app, CommandContext& context);
void add_backup_command(CLI::App& app, CommandContext& context);
void add_restore_command(CLI::App& app, CommandContext& context);
void add_simulate_command(CLI::App& app, CommandContext& context);

// --- for commands that ask a service ------------------------------------------------------------

struct OperatorFlags {
  std::string state = ".";
  config::OutputFormat format = config::OutputFormat::kText;
};
// --state (or STARLING_HOME) and --format.
void add_operator_flags(CLI::App& command, OperatorFlags& flags);

// Connects, does `work`, reports its error; returns the exit code.
int with_service(const OperatorFlags& flags, CommandContext& context,
                 const std::function<Result<int>(OperatorClient&)>& work);

// Asks once; prints the answer as JSON, or as `to_text` writes it.
int ask_and_print(const OperatorFlags& flags, CommandContext& context, const std::string& command,
                  const Settings& arguments,
                  const std::function<std::string(const boost::json::value&)>& to_text);

// Of a file that serves simulations, too.
void note_simulated(std::string_view what, CommandContext& context);
// [network] and [nodes], where they are set.
void note_simulated_sections(const config::Binder& binder, CommandContext& context);

}  // namespace starling::coordinator
