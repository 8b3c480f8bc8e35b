// SPDX-License-Identifier: Apache-2.0
// join TOKEN: makes this machine an operator's, with a token of the role operator.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <ostream>

#include "coordinator/commands/commands.h"
#include "coordinator/service/state_directory.h"
#include "core/enrol/join.h"

namespace starling::coordinator {
namespace {

struct JoinFlags {
  std::string token;
  std::string state = ".";
};

int join(const JoinFlags& flags, CommandContext& context) {
  const auto token = identity::JoinToken::parse(flags.token);
  if (!token) return config::report(token.error(), context.err);
  const auto directory = StateDirectory(flags.state).operator_identity();
  net::EventLoop loop;
  enrol::JoinOptions options{.roles = {identity::Role::kOperator}};
  options.on_retry = [&context](const Error& error, Duration pause) {
    context.err << enrol::describe_retry(error, pause) << std::endl;
  };
  auto joining = enrol::join(loop, *token, directory, context.clock, options);
  const auto joined = net::run_task(loop, std::move(joining));
  if (!joined) return config::report(joined.error(), context.err);
  const identity::Identity& identity = joined->identity();
  context.out << fmt::format(
      "{} joined federation {} as {}; commands on this machine take "
      "--state {}\n",
      identity.name, identity.federation, to_string(identity.role), flags.state);
  return 0;
}

}  // namespace

void add_join_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "join", "take up a token of 'token new --role operator' to give commands from here");
  const auto flags = std::make_shared<JoinFlags>();
  command->add_option("token", flags->token, "STJ1-...")->required()->type_name("TOKEN");
  command->add_option("--state", flags->state, "where the identity is to be kept (DIR/operator)")
      ->envname("STARLING_HOME")
      ->type_name("DIR")
      ->capture_default_str();
  command->callback(
      [flags, &context] { context.run = [flags, &context] { return join(*flags, context); }; });
}

}  // namespace starling::coordinator
