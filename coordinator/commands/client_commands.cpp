// SPDX-License-Identifier: Apache-2.0
// client list | show | revoke
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <memory>

#include "coordinator/commands/commands.h"
#include "coordinator/commands/text_table.h"
#include "core/base/escape_controls.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

struct ListFlags {
  OperatorFlags common;
  std::string role;
};

struct NameFlags {
  OperatorFlags common;
  std::string name;
};

std::string describe_list(const json::value& answer, const telemetry::Terminal& terminal) {
  if (!answer.is_array() || answer.get_array().empty()) {
    return "no device has joined; make a token with 'starling-coordinator token new CLIENT'\n";
  }
  TextTable table({"NAME", "STATE", "CONNECTED", "LAST SEEN", "CERTIFICATE EXPIRES"});
  for (const json::value& client : answer.get_array()) {
    table.add({cell(client, "name"), cell(client, "state"), cell(client, "connected"),
               time_cell(client, "last_seen"), time_cell(client, "certificate_expires")});
  }
  return table.text(terminal.line_max);
}

// "28 x 28"; "-" where there is none.
std::string list_cell(const json::value& client, std::string_view key, std::string_view separator) {
  const json::object* members = client.if_object();
  const json::value* list = members ? members->if_contains(key) : nullptr;
  if (list == nullptr || !list->is_array()) return "-";
  std::string text;
  for (const json::value& item : list->get_array()) {
    if (!text.empty()) text += separator;
    text += item.is_string() ? escape_controls(item.get_string()) : json::serialize(item);
  }
  return text.empty() ? "-" : text;
}

std::string describe_client(const json::value& client) {
  return fmt::format(
      "name                 {}\n"
      "role                 {}\n"
      "state                {}\n"
      "connected            {}\n"
      "joined               {}\n"
      "last seen            {}\n"
      "training rows        {}\n"
      "held-out rows        {}\n"
      "shape of a row       {}\n"
      "classes              {}\n"
      "abilities            {}\n"
      "certificate          {}\n"
      "certificate expires  {}\n"
      "key                  {}\n",
      cell(client, "name"), cell(client, "role"), cell(client, "state"), cell(client, "connected"),
      time_cell(client, "joined"), time_cell(client, "last_seen"), cell(client, "rows"),
      cell(client, "held_out"), list_cell(client, "input", " x "), cell(client, "classes"),
      list_cell(client, "abilities", " "), cell(client, "certificate_serial"),
      time_cell(client, "certificate_expires"), cell(client, "key"));
}

void add_list(CLI::App& group, CommandContext& context) {
  CLI::App* command = group.add_subcommand("list", "the devices and peers that have joined");
  const auto flags = std::make_shared<ListFlags>();
  command->add_option("--role", flags->role, "only devices, peers or operators")->type_name("ROLE");
  add_operator_flags(*command, flags->common);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      Settings arguments;
      if (!flags->role.empty()) arguments.emplace_back("role", flags->role);
      return ask_and_print(
          flags->common, context, "client-list", arguments,
          [&](const json::value& clients) { return describe_list(clients, context.terminal); });
    };
  });
}

using ToText = std::string (*)(const json::value&);

void add_named(CLI::App& group, CommandContext& context, const std::string& word,
               const std::string& help, ToText to_text) {
  CLI::App* command = group.add_subcommand(word, help);
  const auto flags = std::make_shared<NameFlags>();
  command->add_option("name", flags->name, "the client's name")->required()->type_name("NAME");
  add_operator_flags(*command, flags->common);
  command->callback([flags, &context, word, to_text] {
    context.run = [flags, &context, word, to_text] {
      return ask_and_print(flags->common, context, "client-" + word, {{"name", flags->name}},
                           to_text);
    };
  });
}

}  // namespace

void add_client_commands(CLI::App& app, CommandContext& context) {
  CLI::App* group = app.add_subcommand("client", "those who have joined");
  group->require_subcommand(1);
  add_list(*group, context);
  add_named(*group, context, "show", "what is known of a client", describe_client);
  add_named(*group, context, "revoke", "shut a client out, at once and for good",
            [](const json::value& answer) {
              const auto* const warning = answer.as_object().if_contains("warning");
              return fmt::format("{} is revoked; a new token lets the name join again\n{}",
                                 cell(answer, "name"),
                                 warning != nullptr ? cell(answer, "warning") + "\n" : "");
            });
}

}  // namespace starling::coordinator
