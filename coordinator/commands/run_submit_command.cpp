// SPDX-License-Identifier: Apache-2.0
// run submit JOB.toml: every key of the job is also a flag, and the flag wins.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <memory>
#include <ostream>

#include "coordinator/commands/commands.h"
#include "coordinator/commands/run_follow.h"
#include "coordinator/commands/text_table.h"
#include "coordinator/job/job_text.h"
#include "coordinator/job/simulated_world.h"
#include "core/base/escape_controls.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

struct SubmitFlags {
  OperatorFlags common;
  std::string file;
  std::string submit_token;
  bool wait = false;
  Job job;
  WorldOptions world;  // of `simulate`; a file may serve both
  config::Binder binder;
};

Result<int> submit(OperatorClient& client, const SubmitFlags& flags, CommandContext& context) {
  Settings arguments;
  if (!flags.submit_token.empty()) arguments.emplace_back("submit-token", flags.submit_token);
  STARLING_ASSIGN(const json::value answer,
                  client.ask("run-submit", arguments, job_to_toml(flags.job)));
  const std::string id = cell(answer, "id");
  if (flags.common.format == config::OutputFormat::kJson) {
    context.out << json::serialize(answer) << std::endl;
  } else {
    if (const auto* warnings = answer.get_object().if_contains("warnings")) {
      for (const json::value& warning : warnings->get_array()) {
        context.err << "warning: " << escape_controls(warning.get_string()) << '\n';
      }
    }
    context.out << fmt::format("run {} is submitted\n", id) << std::flush;
  }
  if (!flags.wait) return 0;
  return wait_for_run(client, id, {.until_end = true}, flags.common.format, context);
}

int run(SubmitFlags& flags, CommandContext& context) {
  auto read = flags.binder.apply(flags.file);
  if (read) read = flags.job.validate();
  if (!read) return config::report(read, context.err);
  note_simulated_sections(flags.binder, context);
  return with_service(flags.common, context,
                      [&](OperatorClient& client) { return submit(client, flags, context); });
}

}  // namespace

void add_run_submit_command(CLI::App& group, CommandContext& context) {
  CLI::App* command = group.add_subcommand("submit", "queue a training job");
  const auto flags = std::make_shared<SubmitFlags>();
  command->add_option("job", flags->file, "the job")->required()->type_name("JOB.toml");
  command
      ->add_option("--submit-token", flags->submit_token,
                   "any word; the same word again gives the same run, not a second one")
      ->check([](const std::string& word) { return std::string(word.empty() ? "is empty" : ""); })
      ->type_name("T");
  command->add_flag("--wait", flags->wait, "show the run's log until it ends, as 'run wait' does");
  add_operator_flags(*command, flags->common);
  flags->job.bind(flags->binder);
  constexpr std::pair<std::string_view, std::string_view> kShortName{"strategy.name", "strategy"};
  flags->binder.add_flags(*command, {&kShortName, 1});
  flags->world.bind(flags->binder);  // after the flags: no flags of them
  command->callback(
      [flags, &context] { context.run = [flags, &context] { return run(*flags, context); }; });
}

}  // namespace starling::coordinator
