// SPDX-License-Identifier: Apache-2.0
// backup --to DIR: everything a running service needs to go on, as a directory; restore BACKUP
// --to DIR: a state directory from it.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <memory>
#include <ostream>

#include "coordinator/backup_directory.h"
#include "coordinator/commands.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

struct BackupFlags {
  OperatorFlags common;
  std::string to;
};

struct RestoreFlags {
  std::string from;
  std::string to;
  config::OutputFormat format = config::OutputFormat::kText;
};

json::object to_json(const BackupListing& listing, const std::string& directory) {
  return {{"directory", directory},
          {"federation", listing.federation},
          {"created", listing.created},
          {"files", listing.files.size()},
          {"bytes", listing.bytes()},
          {"notes", json::array(listing.notes.begin(), listing.notes.end())}};
}

std::string describe_notes(const BackupListing& listing) {
  std::string text;
  for (const std::string& note : listing.notes) text += fmt::format("note: {}\n", note);
  return text;
}

std::string describe_backup(const BackupListing& listing, const std::string& directory) {
  return fmt::format(
      "backup of the federation '{0}', {1}: {2} files, {3}, in {4}\n"
      "It holds the authority's private key: anyone who can read it can admit devices. Keep it as "
      "safe as the coordinator.\n"
      "{5}"
      "To go on from it: starling-coordinator restore {4} --to NEW-DIR\n",
      listing.federation, listing.created, listing.files.size(), format_byte_count(listing.bytes()),
      directory, describe_notes(listing));
}

std::string describe_restored(const BackupListing& listing, const std::string& directory) {
  return fmt::format(
      "the federation '{0}' as it was at {1} is in {2}: {3} files, {4}, each with the SHA-256 of "
      "its backup\n"
      "What happened since then is not known to it:\n"
      "  clients that joined need a new token; clients that were revoked must be revoked again;\n"
      "  tokens that had not been used are revoked; rounds that were committed are run again.\n"
      "{5}"
      "Next: starling-coordinator serve {2}\n",
      listing.federation, listing.created, directory, listing.files.size(),
      format_byte_count(listing.bytes()), describe_notes(listing));
}

Result<int> backup(OperatorClient& client, const BackupFlags& flags, CommandContext& context) {
  STARLING_ASSIGN(BackupReceiver receiver, BackupReceiver::create(flags.to));
  const auto take = [&](ByteView piece) { return receiver.take(piece); };
  STARLING_TRY(client.stream("backup-directory", {}, {}, take));
  STARLING_ASSIGN(const BackupListing listing, std::move(receiver).finish());
  if (flags.common.format == config::OutputFormat::kJson) {
    context.out << json::serialize(to_json(listing, flags.to)) << '\n';
  } else {
    context.out << describe_backup(listing, flags.to);
  }
  return 0;
}

int restore(const RestoreFlags& flags, CommandContext& context) {
  const auto listing = restore_backup(flags.from, flags.to);
  if (!listing) return config::report(listing.error(), context.err);
  if (flags.format == config::OutputFormat::kJson) {
    context.out << json::serialize(to_json(*listing, flags.to)) << '\n';
  } else {
    context.out << describe_restored(*listing, flags.to);
  }
  return 0;
}

}  // namespace

void add_backup_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "backup", "copy the database, models and keys of a running service into a new directory");
  const auto flags = std::make_shared<BackupFlags>();
  command->add_option("--to", flags->to, "a new or empty directory")->required()->type_name("DIR");
  add_operator_flags(*command, flags->common);
  command->callback([flags, &context] {
    context.run = [flags, &context] {
      return with_service(flags->common, context,
                          [&](OperatorClient& client) { return backup(client, *flags, context); });
    };
  });
}

void add_restore_command(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("restore", "make a state directory from a backup, checking every file");
  const auto flags = std::make_shared<RestoreFlags>();
  command->add_option("backup", flags->from, "the directory that backup --to made")
      ->required()
      ->type_name("BACKUP");
  command->add_option("--to", flags->to, "a new or empty directory, for serve")
      ->required()
      ->type_name("DIR");
  config::add_format(*command, flags->format);
  command->callback(
      [flags, &context] { context.run = [flags, &context] { return restore(*flags, context); }; });
}

}  // namespace starling::coordinator
