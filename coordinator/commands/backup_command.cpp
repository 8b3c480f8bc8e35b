// SPDX-License-Identifier: Apache-2.0
// backup --to DIR: everything a running service needs to go on, as a directory; restore BACKUP
// --to DIR: a state directory from it.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <memory>
#include <ostream>

#include "coordinator/commands/backup_directory.h"
#include "coordinator/commands/commands.h"
#include "core/base/escape_controls.h"
#include "core/base/shell_word.h"

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

// Fills in {federation}, {created}, {files}, {bytes}, {directory}, {notes} and {word}, which is the
// directory as a word of a command.
std::string describe_listing(std::string_view words, const BackupListing& listing,
                             const std::string& directory) {
  std::string notes;
  for (const std::string& note : listing.notes) {
    notes += fmt::format("note: {}\n", escape_controls(note));
  }
  return fmt::format(
      fmt::runtime(words), fmt::arg("federation", escape_controls(listing.federation)),
      fmt::arg("created", listing.created), fmt::arg("files", listing.files.size()),
      fmt::arg("bytes", format_byte_count(listing.bytes())), fmt::arg("directory", directory),
      fmt::arg("word", shell_word(directory)), fmt::arg("notes", notes));
}

constexpr std::string_view kBackupMade =
    "backup of the federation '{federation}', {created}: {files} files, {bytes}, in {directory}\n"
    "It holds the authority's private key: anyone who can read it can admit devices. Keep it as "
    "safe as the coordinator.\n"
    "{notes}"
    "To go on from it: starling-coordinator restore {word} --to NEW-DIR\n";

constexpr std::string_view kRestored =
    "the federation '{federation}' as it was at {created} is in {directory}: {files} files, "
    "{bytes}, each with the SHA-256 of its backup\n"
    "What happened since then is not known to it:\n"
    "  clients that joined need a new token;\n"
    "  clients that were revoked must be revoked again;\n"
    "  tokens that had not been used are revoked;\n"
    "  rounds that were committed are run again.\n"
    "{notes}"
    "Next: starling-coordinator serve {word}\n";

Result<int> backup(OperatorClient& client, const BackupFlags& flags, CommandContext& context) {
  STARLING_ASSIGN(BackupReceiver receiver, BackupReceiver::create(flags.to));
  const auto take = [&](ByteView piece) { return receiver.take(piece); };
  STARLING_TRY(client.stream("backup-directory", {}, {}, take));
  STARLING_ASSIGN(const BackupListing listing, std::move(receiver).finish());
  if (flags.common.format == config::OutputFormat::kJson) {
    context.out << json::serialize(to_json(listing, flags.to)) << '\n';
  } else {
    context.out << describe_listing(kBackupMade, listing, flags.to);
  }
  return 0;
}

int restore(const RestoreFlags& flags, CommandContext& context) {
  const auto listing = restore_backup(flags.from, flags.to);
  if (!listing) return config::report(listing.error(), context.err);
  if (flags.format == config::OutputFormat::kJson) {
    context.out << json::serialize(to_json(*listing, flags.to)) << '\n';
  } else {
    context.out << describe_listing(kRestored, *listing, flags.to);
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
