// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace starling::gossip {

namespace asio = boost::asio;

namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int number() const { return number_; }
  void reset() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

Error cannot_start(const ChildProcess::Options& options, int code) {
  return rejected("cannot-start",
                  fmt::format("{} cannot be run (output to {}): {}", options.arguments.front(),
                              options.log.string(), std::strerror(code)));
}

// What is open besides the standard three ends with exec: asio's sockets do not by themselves, and
// one that a child holds too is not closed when the launcher closes it.
void keep_to_the_standard_three() {
  if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  constexpr long kOpenMax = 1 << 20;  // where the limit is none
  const long limit = ::sysconf(_SC_OPEN_MAX);
  const int end = static_cast<int>(limit < 0 ? kOpenMax : std::min(limit, kOpenMax));
  for (int number = 3; number < end; ++number) ::fcntl(number, F_SETFD, FD_CLOEXEC);
}

// Between fork and exec only what POSIX allows there: other threads may have held any lock.
[[noreturn]] void become(char* const* arguments, int log, int report, pid_t launcher) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have ended before that.
  if (::getppid() != launcher) ::_exit(127);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);
  const int input = ::open("/dev/null", O_RDONLY);
  ::dup2(input, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  keep_to_the_standard_three();
  ::execv(arguments[0], arguments);
  const int code = errno;
  if (::write(report, &code, sizeof code) < 0) ::_exit(126);
  ::_exit(127);
}

}  // namespace

std::string ChildEnd::text() const {
  if (exit_code > 128) return fmt::format("was ended by signal {}", exit_code - 128);
  return fmt::format("ended with exit code {}", exit_code);
}

struct ChildProcess::Impl : std::enable_shared_from_this<Impl> {
  Impl(asio::io_context& context, pid_t process, int descriptor, std::function<void(ChildEnd)> told)
      : id(process), ended(context, descriptor), on_end(std::move(told)) {}

  void watch() {
    ended.async_wait(asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](boost::system::error_code error) {
                       if (error || !self->running) return;
                       const ChildEnd end = self->reap();
                       // It may destroy the object, and so itself.
                       const auto tell = std::move(self->on_end);
                       if (tell) tell(end);
                     });
  }

  // Waits for the process, which has ended or is about to.
  ChildEnd reap() {
    int status = 0;
    pid_t reaped = 0;
    do {
      reaped = ::waitpid(id, &status, 0);
    } while (reaped < 0 && errno == EINTR);
    // What it has started itself goes with it.
    ::kill(-id, SIGKILL);
    running = false;
    return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)};
  }

  pid_t id;
  asio::posix::stream_descriptor ended;  // readable when the process has ended
  std::function<void(ChildEnd)> on_end;
  bool running = true;
};

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(net::EventLoop& loop,
                                                          const Options& options,
                                                          std::function<void(ChildEnd)> on_end) {
  STARLING_CHECK(!options.arguments.empty());
  std::vector<char*> arguments;
  for (const std::string& argument : options.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const FileDescriptor log(
      ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  int pipe_ends[2];
  if (log.number() < 0 || ::pipe2(pipe_ends, O_CLOEXEC) != 0) return cannot_start(options, errno);
  const FileDescriptor report(pipe_ends[0]);
  FileDescriptor reporter(pipe_ends[1]);
  const pid_t launcher = ::getpid();
  const pid_t id = ::fork();
  if (id < 0) return cannot_start(options, errno);
  if (id == 0) become(arguments.data(), log.number(), reporter.number(), launcher);
  ::setpgid(id, id);  // the child does so too: whoever is first
  reporter.reset();
  int code = 0;
  // The pipe closes with exec, without a word.
  if (::read(report.number(), &code, sizeof code) > 0) {
    ::waitpid(id, nullptr, 0);
    return cannot_start(options, code);
  }
  FileDescriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, id, 0)));
  if (descriptor.number() < 0) {
    code = errno;
    ::kill(id, SIGKILL);
    ::waitpid(id, nullptr, 0);
    return cannot_start(options, code);
  }
  auto impl = std::make_shared<Impl>(loop.context(), id, descriptor.release(), std::move(on_end));
  impl->watch();
  return std::unique_ptr<ChildProcess>(new ChildProcess(std::move(impl)));
}

ChildProcess::~ChildProcess() {
  impl_->on_end = nullptr;
  if (impl_->running) {
    signal(SIGKILL);
    impl_->reap();
  }
  boost::system::error_code ignored;
  impl_->ended.close(ignored);
}

void ChildProcess::signal(int number) const {
  if (impl_->running) ::kill(-impl_->id, number);
}

bool ChildProcess::running() const { return impl_->running; }
pid_t ChildProcess::id() const { return impl_->id; }

}  // namespace starling::gossip
