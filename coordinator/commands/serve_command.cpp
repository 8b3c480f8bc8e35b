// SPDX-License-Identifier: Apache-2.0
// serve DIR: the service in the foreground. SIGTERM and SIGINT drain, a second one ends at once;
// SIGHUP reads the settings again.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <CLI/App.hpp>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <utility>

#include "coordinator/commands/backup_directory.h"
#include "coordinator/commands/commands.h"
#include "coordinator/machine/repetition.h"
#include "coordinator/service/coordinator_service.h"
#include "core/base/durable_file.h"
#include "core/base/shell_word.h"
#include "core/net/alarm.h"
#include "core/net/signals.h"
#include "core/net/task_group.h"
#include "core/telemetry/wrapped_stream.h"

namespace starling::coordinator {
namespace {

struct ServeFlags {
  std::string directory;
  bool verbose = false;
  CoordinatorSettings settings;
  config::Binder binder;
};

class Server {
 public:
  Server(const StateDirectory& state, ServeFlags& flags, CommandContext& context, Log& log)
      : state_(state), flags_(flags), context_(context), log_(log) {}

  // Fails where the service cannot start.
  Result<int> serve() {
    auto service = CoordinatorService::start(loop_, context_.clock, log_, state_, flags_.settings,
                                             [this](const Error& error) { broke(error); });
    if (!service) return service.error();
    service_ = std::move(*service);
    if (!failure_) {  // else it broke while starting
      const net::SignalWatcher signals(loop_, [this](net::Signal signal) { on_signal(signal); });
      loop_.run();
    } else {
      loop_.run_task(service_->stop());
    }
    return finish();
  }

 private:
  void on_signal(net::Signal signal) {
    if (signal == net::Signal::kHangUp) return reload();
    if (stopping_) std::_Exit(static_cast<int>(config::ExitCode::kFailed));
    log_.info("stopping");
    stop();
  }

  void broke(const Error& error) {
    failure_ = error;
    if (service_) loop_.post([this] { stop(); });
  }

  void stop() {
    if (std::exchange(stopping_, true)) return;
    tasks_.spawn(drain());
  }

  net::Async<void> drain() {
    co_await service_->stop();
    loop_.stop();
  }

  void reload() {
    flags_.settings = {};  // what the file no longer says is as by default
    auto read = flags_.binder.apply(state_.options_file());
    if (read) read = flags_.settings.validate();
    if (read) return service_->reload(flags_.settings);
    log_.error("the settings stay as they were: {}", read.error().message());
  }

  int finish() {
    const int code = failure_ ? config::report(*failure_, context_.err) : 0;
    if (!failure_) log_.info("stopped");
    // What is being computed is not waited for: it was not promised to anybody, and the next start
    // resumes the round.
    if (service_->is_computing()) {
      context_.err.flush();
      std::_Exit(code);
    }
    service_.reset();
    return code;
  }

  StateDirectory state_;
  ServeFlags& flags_;
  CommandContext& context_;
  Log& log_;
  net::EventLoop loop_;
  net::TaskGroup tasks_{loop_};
  std::unique_ptr<CoordinatorService> service_;
  std::optional<Error> failure_;
  bool stopping_ = false;
};

Result<void> expect_initialised(const StateDirectory& state) {
  std::error_code code;
  if (std::filesystem::exists(state.options_file(), code)) return {};
  if (code) {
    return rejected("no-permission", fmt::format("{} cannot be read: {}",
                                                 state.options_file().string(), code.message()));
  }
  STARLING_TRY(expect_not_interrupted(state));
  const bool is_free =
      !std::filesystem::exists(state.root(), code) || std::filesystem::is_empty(state.root(), code);
  return rejected(
      "not-initialised",
      fmt::format("{} is not a coordinator's state directory (no coordinator.toml); "
                  "make one with: starling-coordinator init {}",
                  state.root().string(), is_free ? shell_word(state.root().string()) : "NEW-DIR"));
}

// A connection is a descriptor, and the usual soft limit is below sessions-max. Best effort.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Models come and go every round. By default the allocator soon keeps blocks of their size for
// itself, in the part of each thread that ever freed one.
void give_large_blocks_back() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

// Whether the process was told to end meanwhile, which ends the wait; there is nothing to reload.
// Calls `say` after it has begun to watch for signals, so that one sent in reply to the log line
// is not lost.
bool stopped_within(Duration time, const std::function<void()>& say) {
  net::EventLoop loop;
  bool stopped = false;
  const net::SignalWatcher signals(loop, [&](net::Signal signal) {
    if (signal == net::Signal::kHangUp) return;
    stopped = true;
    loop.stop();
  });
  say();
  net::Alarm alarm(loop, [&loop] { loop.stop(); });
  alarm.set(loop.now() + time);
  loop.run();
  return stopped;
}

int serve(ServeFlags& flags, CommandContext& context) {
  const StateDirectory state(flags.directory);
  auto ready = expect_no_backup(state.root());
  if (ready) ready = expect_initialised(state);
  if (ready) ready = flags.binder.apply(state.options_file());
  if (ready) ready = flags.settings.validate();
  if (!ready) return config::report(ready, context.err);
  raise_file_limit();
  give_large_blocks_back();
  const auto log =
      telemetry::make_program_log(flags.verbose ? LogLevel::kDebug : LogLevel::kInfo, std::getenv);
  for (std::uint64_t failed = 1;; ++failed) {
    const auto code = Server(state, flags, context, *log).serve();
    if (code) return *code;
    if (code.error().code() != "disk-full") return config::report(code.error(), context.err);
    // No room for what a start writes, such as the record of a round that is withdrawn.
    const bool stopped = stopped_within(flags.settings.service.disk_retry, [&] {
      if (!is_logged(failed)) return;
      log->warning("the service cannot start yet: {}", code.error().message());
    });
    if (stopped) return 0;
  }
}

}  // namespace

void add_serve_command(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("serve", "run the service, in the foreground");
  const auto flags = std::make_shared<ServeFlags>();
  command->add_option("directory", flags->directory, "the state directory that init made")
      ->required()
      ->envname("STARLING_HOME")
      ->type_name("DIR");
  command->add_flag("--verbose", flags->verbose, "say more");
  flags->settings.bind(flags->binder);
  flags->binder.add_config(*command);
  flags->binder.add_flags(*command);
  command->callback(
      [flags, &context] { context.run = [flags, &context] { return serve(*flags, context); }; });
}

}  // namespace starling::coordinator
