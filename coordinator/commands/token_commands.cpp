// SPDX-License-Identifier: Apache-2.0
// token new | list | revoke
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <memory>

#include "coordinator/commands/commands.h"
#include "coordinator/commands/text_table.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

struct NewFlags {
  OperatorFlags common;
  std::string client;
  std::string valid;
  std::string role = "device";
  std::string address;
};

struct RevokeFlags {
  OperatorFlags common;
  std::string id;
};

std::string describe_new(const json::value& answer) {
  return fmt::format("On {}, once and before {}, type:\n\n  {}\n", cell(answer, "client"),
                     time_cell(answer, "expires"), cell(answer, "command"));
}

std::string describe_tokens(const json::value& answer, const telemetry::Terminal& terminal) {
  if (!answer.is_array() || answer.get_array().empty()) {
    return "no tokens; make one with 'starling-coordinator token new CLIENT'\n";
  }
  TextTable table({"ID", "CLIENT", "ROLE", "STATE", "EXPIRES"});
  for (const json::value& token : answer.get_array()) {
    table.add({cell(token, "id"), cell(token, "client"), cell(token, "role"), cell(token, "state"),
               time_cell(token, "expires")});
  }
  return table.text(terminal.line_max);
}

void add_new(CLI::App& group, CommandContext& context) {
  CLI::App* command = group.add_subcommand("new", "make a one-use token for a device to join");
  const auto flags = std::make_shared<NewFlags>();
  command->add_option("client", flags->client, "the name that the device will have")
      ->required()
      ->type_name("CLIENT");
  command->add_option("--valid", flags->valid, "life of the token, such as 30m or 2d")
      ->type_name("DURATION");
  command->add_option("--role", flags->role, "device, peer or operator")
      ->type_name("ROLE")
      ->capture_default_str();
  command->add_option("--address", flags->address, "of a peer: where other peers may dial it")
      ->type_name("HOST:PORT");
  add_operator_flags(*command, flags->common);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      Settings arguments = {{"client", flags->client}, {"role", flags->role}};
      if (!flags->valid.empty()) arguments.emplace_back("valid", flags->valid);
      if (!flags->address.empty()) arguments.emplace_back("address", flags->address);
      return ask_and_print(flags->common, context, "token-new", arguments, describe_new);
    };
  });
}

void add_token_list(CLI::App& group, CommandContext& context) {
  CLI::App* command = group.add_subcommand("list", "all tokens, the oldest first");
  const auto flags = std::make_shared<OperatorFlags>();
  add_operator_flags(*command, *flags);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return ask_and_print(*flags, context, "token-list", {}, [&](const json::value& tokens) {
        return describe_tokens(tokens, context.terminal);
      });
    };
  });
}

void add_revoke(CLI::App& group, CommandContext& context) {
  CLI::App* command = group.add_subcommand("revoke", "make a token useless");
  const auto flags = std::make_shared<RevokeFlags>();
  command->add_option("id", flags->id, "as 'token list' shows it")->required()->type_name("ID");
  add_operator_flags(*command, flags->common);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return ask_and_print(flags->common, context, "token-revoke", {{"id", flags->id}},
                           [](const json::value& answer) {
                             return fmt::format("token {} is revoked\n", cell(answer, "id"));
                           });
    };
  });
}

}  // namespace

void add_token_commands(CLI::App& app, CommandContext& context) {
  CLI::App* group = app.add_subcommand("token", "tokens, with which devices join");
  group->require_subcommand(1);
  add_new(*group, context);
  add_token_list(*group, context);
  add_revoke(*group, context);
}

}  // namespace starling::coordinator
