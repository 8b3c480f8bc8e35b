// SPDX-License-Identifier: Apache-2.0
// backup --to FILE: the database of a running service, as one file.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <memory>
#include <ostream>

#include "coordinator/commands.h"
#include "coordinator/received_file.h"

namespace starling::coordinator {
namespace {

struct BackupFlags {
  OperatorFlags common;
  std::string to;
};

Result<int> backup(OperatorClient& client, const BackupFlags& flags, CommandContext& context) {
  const auto nothing_to_check = [] { return Result<void>(); };
  STARLING_ASSIGN(const std::uint64_t bytes, receive_file(
                                                 client, {.command = "backup", .secret = true},
                                                 flags.to, [](ByteView) {}, nothing_to_check));
  if (flags.common.format == config::OutputFormat::kJson) {
    context.out << boost::json::serialize(boost::json::object{{"file", flags.to}, {"bytes", bytes}})
                << '\n';
  } else {
    context.out << fmt::format(
        "{} written to {}: put it in the place of starling.db; ca/, models/, gossip/ and "
        "coordinator.toml are copied by themselves\n",
        format_byte_count(bytes), flags.to);
  }
  return 0;
}

}  // namespace

void add_backup_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("backup", "copy the database of a running service");
  const auto flags = std::make_shared<BackupFlags>();
  command->add_option("--to", flags->to, "the copy")->required()->type_name("FILE");
  add_operator_flags(*command, flags->common);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return with_service(flags->common, context,
                          [&](OperatorClient& client) { return backup(client, *flags, context); });
    };
  });
}

}  // namespace starling::coordinator
