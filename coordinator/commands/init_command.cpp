// SPDX-License-Identifier: Apache-2.0
// init DIR: a new state directory.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <memory>
#include <ostream>

#include "coordinator/commands/commands.h"
#include "coordinator/service/state_directory.h"
#include "core/base/shell_word.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

struct InitFlags {
  std::string directory;
  InitOptions options;
  config::OutputFormat format = config::OutputFormat::kText;
};

std::string describe(const InitFlags& flags, const InitResult& made) {
  return fmt::format(
      "The federation '{0}' is made in {1}; it listens on {2}.\n"
      "Devices dial {3} (first of: {4}; init --name says otherwise).\n"
      "\n"
      "Next:\n"
      "  starling-coordinator serve {5}\n"
      "and in another terminal, to learn what to type on a device:\n"
      "  starling-coordinator token new NAME --state {5}\n",
      made.federation, flags.directory, made.listen, made.names.front(),
      fmt::join(made.names, ", "), shell_word(flags.directory));
}

int init(const InitFlags& flags, CommandContext& context) {
  const auto made = init_state_directory(flags.directory, flags.options, context.clock);
  if (!made) return config::report(made.error(), context.err);
  if (flags.format == config::OutputFormat::kText) {
    context.out << describe(flags, *made);
    return 0;
  }
  json::array names(made->names.begin(), made->names.end());
  context.out << json::serialize(json::object{{"directory", flags.directory},
                                              {"federation", made->federation},
                                              {"listen", made->listen},
                                              {"names", std::move(names)},
                                              {"authority", made->authority}})
              << '\n';
  return 0;
}

}  // namespace

void add_init_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("init", "make a coordinator's state directory");
  const auto flags = std::make_shared<InitFlags>();
  command->add_option("directory", flags->directory, "a new or empty directory")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--federation", flags->options.federation,
                   "its name in every certificate (default: the directory's name)")
      ->type_name("NAME");
  command->add_option("--listen", flags->options.listen, "where to listen")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  command
      ->add_option("--name", flags->options.names,
                   "a DNS name or address that devices dial; the first stands in join tokens "
                   "(default: this machine's addresses and name)")
      ->type_name("NAME");
  config::add_format(*command, flags->format);
  command->callback(
      [flags, &context] { context.run = [flags, &context] { return init(*flags, context); }; });
}

}  // namespace starling::coordinator
