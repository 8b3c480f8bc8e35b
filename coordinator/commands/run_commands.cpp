// SPDX-License-Identifier: Apache-2.0
// run list | show | log | wait | stop
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <memory>
#include <ostream>

#include "coordinator/commands/commands.h"
#include "coordinator/commands/run_follow.h"
#include "coordinator/commands/run_view.h"
#include "coordinator/commands/text_table.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

struct RunFlags {
  OperatorFlags common;
  std::string id;
  bool follow = false;
  std::string timeout;
};

std::shared_ptr<RunFlags> add_run_flags(CLI::App& command) {
  auto flags = std::make_shared<RunFlags>();
  command.add_option("id", flags->id, "the run's number")->required()->type_name("ID");
  add_operator_flags(command, flags->common);
  return flags;
}

void add_run_list(CLI::App& group, CommandContext& context) {
  CLI::App* command = group.add_subcommand("list", "all runs, in order of submission");
  const auto flags = std::make_shared<OperatorFlags>();
  add_operator_flags(*command, *flags);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return ask_and_print(*flags, context, "run-list", {}, [&](const json::value& runs) {
        return describe_runs(runs, context.terminal);
      });
    };
  });
}

void add_show(CLI::App& group, CommandContext& context) {
  CLI::App* command = group.add_subcommand("show", "a run and its rounds");
  const auto flags = add_run_flags(*command);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return ask_and_print(
          flags->common, context, "run-show", {{"id", flags->id}},
          [&](const json::value& run) { return describe_run(run, context.terminal); });
    };
  });
}

Result<int> log(OperatorClient& client, const RunFlags& flags, CommandContext& context) {
  const bool is_json = flags.common.format == config::OutputFormat::kJson;
  STARLING_TRY(
      follow_log(client, flags.id, {.until_end = flags.follow}, [&](const json::value& line) {
        context.out << (is_json ? json::serialize(line) : cell(line, "text")) << std::endl;
      }));
  return 0;
}

void add_log(CLI::App& group, CommandContext& context) {
  CLI::App* command = group.add_subcommand("log", "what a run said");
  const auto flags = add_run_flags(*command);
  command->add_flag("--follow", flags->follow, "and what it says, until it ends");
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return with_service(flags->common, context,
                          [&](OperatorClient& client) { return log(client, *flags, context); });
    };
  });
}

Result<int> wait(OperatorClient& client, const RunFlags& flags, CommandContext& context) {
  FollowOptions options{.until_end = true, .only_new = true};
  if (!flags.timeout.empty()) {
    STARLING_ASSIGN(const Duration timeout, parse_duration(flags.timeout));
    options.deadline = client.now() + timeout;
  }
  return wait_for_run(client, flags.id, options, flags.common.format, context);
}

void add_wait(CLI::App& group, CommandContext& context) {
  CLI::App* command = group.add_subcommand(
      "wait", "until a run ends; exit code 0 completed, 1 failed or stopped, 3 timed out");
  const auto flags = add_run_flags(*command);
  command->add_option("--timeout", flags->timeout, "how long, such as 90s or 2h")
      ->type_name("DURATION");
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return with_service(flags->common, context,
                          [&](OperatorClient& client) { return wait(client, *flags, context); });
    };
  });
}

std::string describe_stop(const json::value& answer) {
  const std::string state = cell(answer, "state");
  if (state == "running") {
    return fmt::format("run {} is asked to stop; 'run wait {}' tells when it has\n",
                       cell(answer, "id"), cell(answer, "id"));
  }
  return fmt::format("run {} is {}\n", cell(answer, "id"), state);
}

void add_stop(CLI::App& group, CommandContext& context) {
  CLI::App* command = group.add_subcommand("stop", "end a run; its models stay");
  const auto flags = add_run_flags(*command);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return ask_and_print(flags->common, context, "run-stop", {{"id", flags->id}}, describe_stop);
    };
  });
}

}  // namespace

void add_run_submit_command(CLI::App& group, CommandContext& context);
void add_run_export_command(CLI::App& group, CommandContext& context);

void add_run_commands(CLI::App& app, CommandContext& context) {
  CLI::App* group = app.add_subcommand("run", "training jobs and what came of them");
  group->require_subcommand(1);
  add_run_submit_command(*group, context);
  add_run_list(*group, context);
  add_show(*group, context);
  add_log(*group, context);
  add_wait(*group, context);
  add_stop(*group, context);
  add_run_export_command(*group, context);
}

}  // namespace starling::coordinator
