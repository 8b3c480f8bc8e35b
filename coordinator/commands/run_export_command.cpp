// SPDX-License-Identifier: Apache-2.0
// run export ID --to FILE.safetensors: a model of a run, checked against its SHA-256.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <filesystem>
#include <memory>
#include <ostream>

#include "coordinator/commands/commands.h"
#include "coordinator/commands/received_file.h"
#include "coordinator/commands/text_table.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

struct ExportFlags {
  OperatorFlags common;
  std::string id;
  std::string to;
  std::string round;
  bool best = false;
};

Result<void> check(ModelHasher hasher, const std::string& expected) {
  const std::string found = std::move(hasher).finish().hex();
  if (found == expected) return {};
  return rejected("model-damaged",
                  fmt::format("the model that came has SHA-256 {}, not {}; nothing was written",
                              found, expected));
}

Result<int> export_model(OperatorClient& client, const ExportFlags& flags,
                         CommandContext& context) {
  std::error_code ignored;
  if (std::filesystem::is_directory(flags.to, ignored)) {
    return config::usage_error(fmt::format(
        "--to {} is a directory; give the name of the file, such as {}", flags.to,
        (std::filesystem::path(flags.to) / fmt::format("run-{}.safetensors", flags.id)).string()));
  }
  Settings arguments = {{"id", flags.id}};
  if (!flags.round.empty()) arguments.emplace_back("round", flags.round);
  if (flags.best) arguments.emplace_back("best", "true");
  STARLING_ASSIGN(const json::value model, client.ask("run-model", arguments));
  const std::string round = cell(model, "round");
  const std::string sha256 = cell(model, "model_sha256");
  ModelHasher hasher;
  // By number: the run may go on meanwhile.
  const FileRequest request{.command = "run-export",
                            .arguments = {{"id", flags.id}, {"round", round}}};
  STARLING_ASSIGN(const std::uint64_t bytes,
                  receive_file(
                      client, request, flags.to, [&](ByteView piece) { hasher.update(piece); },
                      [&] { return check(std::move(hasher), sha256); }));
  if (flags.common.format == config::OutputFormat::kJson) {
    json::object answer = model.get_object();
    answer["file"] = flags.to;
    answer["bytes"] = bytes;
    context.out << json::serialize(answer) << '\n';
  } else {
    context.out << fmt::format(
        "the model of round {} of run {}, {}, is in {}\nSHA-256 of its values {}\n", round,
        flags.id, format_byte_count(bytes), flags.to, sha256);
  }
  return 0;
}

}  // namespace

void add_run_export_command(CLI::App& group, CommandContext& context) {
  CLI::App* command = group.add_subcommand("export", "take a model out, as safetensors");
  const auto flags = std::make_shared<ExportFlags>();
  command->add_option("id", flags->id, "the run's number")->required()->type_name("ID");
  command->add_option("--to", flags->to, "the file")->required()->type_name("FILE.safetensors");
  CLI::Option* round =
      command->add_option("--round", flags->round, "of this round (default: the last; 0: initial)")
          ->type_name("N");
  command
      ->add_flag("--best", flags->best,
                 "of the best round: by stop.metric of its job, else by accuracy, else by loss")
      ->excludes(round);
  add_operator_flags(*command, flags->common);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return with_service(flags->common, context, [&](OperatorClient& client) {
        return export_model(client, *flags, context);
      });
    };
  });
}

}  // namespace starling::coordinator
