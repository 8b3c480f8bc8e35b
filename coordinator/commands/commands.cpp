// SPDX-License-Identifier: Apache-2.0
#include "coordinator/commands/commands.h"

#include <CLI/App.hpp>
#include <ostream>

namespace starling::coordinator {

void add_commands(CLI::App& app, CommandContext& context) {
  app.require_subcommand(1);
  add_init_command(app, context);
  add_serve_command(app, context);
  add_token_commands(app, context);
  add_client_commands(app, context);
  add_run_commands(app, context);
  add_gossip_commands(app, context);
  add_backup_command(app, context);
  add_restore_command(app, context);
  add_join_command(app, context);
  add_simulate_command(app, context);
}

void add_operator_flags(CLI::App& command, OperatorFlags& flags) {
  command
      .add_option("--state", flags.state,
                  "the coordinator's state directory, or an operator's identity")
      ->envname("STARLING_HOME")
      ->type_name("DIR")
      ->capture_default_str();
  config::add_format(command, flags.format);
}

int with_service(const OperatorFlags& flags, CommandContext& context,
                 const std::function<Result<int>(OperatorClient&)>& work) {
  const auto client = OperatorClient::connect(flags.state, context.clock);
  if (!client) return config::report(client.error(), context.err);
  const auto result = work(**client);
  if (!result) return config::report(result.error(), context.err);
  return *result;
}

int ask_and_print(const OperatorFlags& flags, CommandContext& context, const std::string& command,
                  const Settings& arguments,
                  const std::function<std::string(const boost::json::value&)>& to_text) {
  return with_service(flags, context, [&](OperatorClient& client) -> Result<int> {
    if (flags.format == config::OutputFormat::kJson) {
      STARLING_ASSIGN(const std::string answer, client.ask_text(command, arguments));
      context.out << answer << '\n';
    } else {
      STARLING_ASSIGN(const auto answer, client.ask(command, arguments));
      context.out << to_text(answer);
    }
    return 0;
  });
}

void note_simulated(std::string_view what, CommandContext& context) {
  context.err << "note: " << what
              << " is of simulated networks and means nothing to real devices\n";
}

void note_simulated_sections(const config::Binder& binder, CommandContext& context) {
  for (const std::string section : {"network", "nodes"}) {
    if (binder.says(section)) note_simulated("[" + section + "]", context);
  }
}

}  // namespace starling::coordinator
