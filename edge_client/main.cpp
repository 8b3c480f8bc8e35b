// SPDX-License-Identifier: Apache-2.0
// The device's program. Here alone are the environment, the system's randomness and the signals.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <random>

#include "core/base/core_dumps.h"
#include "core/config/binder.h"
#include "core/identity/join_token.h"
#include "core/telemetry/wrapped_stream.h"
#include "edge_client/join_command.h"
#include "edge_client/preflight_command.h"
#include "edge_client/roster_command.h"
#include "edge_client/start_command.h"
#include "edge_client/status_command.h"

namespace starling::edge_client {
namespace {

struct Arguments {
  std::string state;
  JoinRequest join;
  std::string roster_file;
  EdgeOptions options;
  config::Binder binder;
  config::OutputFormat format = config::OutputFormat::kText;

  Result<EdgeOptions> read_options(const StateDirectory& directory) {
    STARLING_ASSIGN(const auto file, directory.find_options_file());
    STARLING_TRY(binder.apply(file.value_or(std::filesystem::path())));
    STARLING_TRY(validate(options));
    return options;
  }
};

std::string default_state() {
  const char* home = std::getenv("STARLING_HOME");
  return home != nullptr && *home != '\0' ? home : ".";
}

CLI::App* add_command(CLI::App& app, const char* name, const char* help, Arguments& arguments) {
  CLI::App* command = app.add_subcommand(name, help);
  command->add_option("--state", arguments.state, "state directory of this device")
      ->type_name("DIR")
      ->default_str("STARLING_HOME, else .");
  return command;
}

void add_commands(CLI::App& app, Arguments& arguments) {
  app.require_subcommand(1);
  CLI::App* join = add_command(app, "join", "make this device's key and certificate", arguments);
  join->add_option("TOKEN", arguments.join.token, "what the operator's `token new` printed")
      ->required();
  join->add_flag("--replace", arguments.join.replace,
                 "take a new identity although there is one already");
  config::add_format(*join, arguments.format);
  CLI::App* start =
      add_command(app, "start", "train for the federation until it is stopped", arguments);
  arguments.binder.add_config(*start);
  arguments.binder.add_flags(*start);
  CLI::App* check = add_command(app, "preflight", "check that this device would work", arguments);
  config::add_format(*check, arguments.format);
  arguments.binder.add_config(*check);
  arguments.binder.add_flags(*check);
  CLI::App* roster = add_command(app, "roster", "take a signed roster, or show it", arguments);
  roster->add_option("FILE", arguments.roster_file,
                     "what `starling-coordinator gossip sign` made; without: the one that is held");
  config::add_format(*roster, arguments.format);
  CLI::App* status = add_command(app, "status", "what this device is doing", arguments);
  config::add_format(*status, arguments.format);
}

std::uint64_t system_randomness() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

bool ignores_hang_up() {
  struct sigaction action {};
  return ::sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

int run_start(const StateDirectory& state, Arguments& arguments, const Clock& clock) {
  const auto options = arguments.read_options(state);
  if (!options) return config::report(options.error(), std::cerr);
  const auto log = telemetry::make_program_log(options->log.threshold(), std::getenv);
  const StartRequest request{.state = state,
                             .options = *options,
                             .version = STARLING_VERSION,
                             .backoff_seed = system_randomness(),
                             .stops_on_hang_up = !ignores_hang_up()};
  return config::report(start(request, clock, *log), std::cerr);
}

int run(CLI::App& app, Arguments& arguments, std::size_t columns) {
  const StateDirectory state{arguments.state.empty() ? default_state() : arguments.state};
  const SystemClock clock;
  if (app.got_subcommand("join")) {
    arguments.join.state = state;
    return join(arguments.join, clock, arguments.format, std::cout, std::cerr);
  }
  if (app.got_subcommand("start")) return run_start(state, arguments, clock);
  if (app.got_subcommand("preflight")) {
    const PreflightRequest request{state, arguments.read_options(state), STARLING_VERSION};
    return preflight(request, clock, arguments.format, std::cout, columns);
  }
  if (app.got_subcommand("roster")) {
    return roster(arguments.roster_file, state, clock.wall_now(), arguments.format, std::cout,
                  std::cerr);
  }
  return status(state, clock.wall_now(), arguments.format, std::cout, std::cerr, columns);
}

}  // namespace
}  // namespace starling::edge_client

int main(int argc, char** argv) {
  using namespace starling;
  forbid_core_dumps();
  const telemetry::ProgramOutput output(std::getenv);
  CLI::App app("A device of a Starling federation: it trains on its own data and reports updates.",
               "starling-edge");
  config::set_up(app, STARLING_VERSION);
  edge_client::Arguments arguments;
  edge_client::bind(arguments.binder, arguments.options);
  edge_client::add_commands(app, arguments);
  const std::span<char* const> words(argv, static_cast<std::size_t>(argc));
  const auto ended = config::parse(app, words, std::cout, std::cerr);
  identity::hide_join_tokens(words);
  if (ended) return *ended;
  const std::size_t columns = output.terminal().line_max;
  return config::run([&] { return edge_client::run(app, arguments, columns); }, std::cerr);
}
