// SPDX-License-Identifier: Apache-2.0
#include "core/base/subprocess.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/base/check.h"

namespace starling {
namespace {

Error cannot_start(const Subprocess::Options& options, int code) {
  return rejected("cannot-start",
                  options.arguments.front() + " cannot be run: " + std::strerror(code));
}

// As execve takes them. Borrows.
std::vector<char*> c_strings(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// What is open besides the standard three ends with exec: asio's sockets do not by themselves, and
// one that a child holds too is not closed when this process closes it.
void keep_to_the_standard_three() {
  if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  constexpr long kOpenMax = 1 << 20;  // where the limit is none
  const long limit = ::sysconf(_SC_OPEN_MAX);
  const int end = static_cast<int>(limit < 0 ? kOpenMax : std::min(limit, kOpenMax));
  for (int number = 3; number < end; ++number) ::fcntl(number, F_SETFD, FD_CLOEXEC);
}

// Everything that the child needs, made before fork.
struct Plan {
  std::vector<char*> arguments;
  std::vector<char*> environment;  // empty: this process's
  std::vector<Subprocess::Descriptor> descriptors;
  int report = -1;  // where the child writes why it did not begin
  pid_t parent = 0;
  bool outlives_parent = false;  // and a terminal's signals do not reach it
};

[[noreturn]] void fail(int report) {
  const int code = errno;
  if (::write(report, &code, sizeof code) < 0) ::_exit(126);
  ::_exit(127);
}

// Gives the descriptors their numbers. Those are moved above all numbers first: one's source may
// have another's number.
void place_descriptors(Plan& plan) {
  int above = 3;
  for (const auto& descriptor : plan.descriptors) above = std::max(above, descriptor.number + 1);
  const int report = ::fcntl(plan.report, F_DUPFD_CLOEXEC, above);
  if (report < 0) fail(plan.report);
  plan.report = report;
  for (auto& descriptor : plan.descriptors) {
    descriptor.source = ::fcntl(descriptor.source, F_DUPFD_CLOEXEC, above);
    if (descriptor.source < 0) fail(plan.report);
  }
  const int input = ::open("/dev/null", O_RDONLY);
  if (input < 0 || ::dup2(input, STDIN_FILENO) < 0) fail(plan.report);
  keep_to_the_standard_three();
  for (const auto& descriptor : plan.descriptors) {
    if (::dup2(descriptor.source, descriptor.number) < 0) fail(plan.report);
  }
}

// Between fork and exec only what POSIX allows there: other threads may have held any lock.
[[noreturn]] void become(Plan& plan) {
  if (plan.outlives_parent) {
    ::setsid();
  } else {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have ended before that.
    if (::getppid() != plan.parent) ::_exit(127);
  }
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  place_descriptors(plan);
  if (!plan.environment.empty()) environ = plan.environment.data();
  ::execvp(plan.arguments.front(), plan.arguments.data());
  fail(plan.report);
}

ProcessEnd reap(pid_t id) {
  int status = 0;
  pid_t reaped = 0;
  do {
    reaped = ::waitpid(id, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)};
}

}  // namespace

std::string ProcessEnd::text() const {
  if (exit_code > 128) return "was ended by signal " + std::to_string(exit_code - 128);
  return "ended with exit code " + std::to_string(exit_code);
}

Result<std::unique_ptr<Subprocess>> Subprocess::start(const Options& options) {
  STARLING_CHECK(!options.arguments.empty());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return cannot_start(options, errno);
  const FileDescriptor report(ends[0]);
  FileDescriptor reporter(ends[1]);
  Plan plan{.arguments = c_strings(options.arguments),
            .environment = {},
            .descriptors = options.descriptors,
            .report = reporter.get(),
            .parent = ::getpid()};
  if (options.environment) plan.environment = c_strings(*options.environment);
  const pid_t id = ::fork();
  if (id < 0) return cannot_start(options, errno);
  if (id == 0) become(plan);
  ::setpgid(id, id);  // the child does so too: whoever is first
  reporter.close();
  int code = 0;
  ssize_t got = 0;
  do {
    got = ::read(report.get(), &code, sizeof code);  // the pipe closes with exec, without a word
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    reap(id);
    return cannot_start(options, code);
  }
  FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, id, 0)));
  if (pidfd.get() < 0) {
    code = errno;
    ::kill(-id, SIGKILL);
    reap(id);
    return cannot_start(options, code);
  }
  std::unique_ptr<Subprocess> started(new Subprocess(id, std::move(pidfd)));
  if (options.guarded) started->start_guard();
  return started;
}

// Where there is no shell, there is no guard. A pipe's end tells it of this process's.
void Subprocess::start_guard() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  const FileDescriptor reader(ends[0]);
  guard_line_ = FileDescriptor(ends[1]);
  const FileDescriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const std::vector<std::string> words = {
      "/bin/sh", "-c", "trap '' TERM HUP INT; read -r end; kill -s KILL -- \"-$1\"", "sh",
      std::to_string(id_)};
  Plan plan{.arguments = c_strings(words),
            .environment = {},
            .descriptors = {{STDIN_FILENO, reader.get()},
                            {STDOUT_FILENO, nowhere.get()},
                            {STDERR_FILENO, nowhere.get()}},
            .report = nowhere.get(),
            .parent = ::getpid(),
            .outlives_parent = true};
  guard_ = ::fork();
  if (guard_ == 0) become(plan);
}

// Before the number of the group is free for another.
void Subprocess::end_guard() {
  if (guard_ <= 0) return;
  ::kill(guard_, SIGKILL);
  reap(std::exchange(guard_, 0));
}

Subprocess::~Subprocess() {
  kill_group(SIGKILL);
  wait();
}

void Subprocess::kill_group(int signal) const {
  if (!running()) return;
  ::kill(-id_, signal);
  ::kill(id_, signal);  // which may have left its group
}

ProcessEnd Subprocess::wait() {
  if (end_) return *end_;
  siginfo_t ignored;
  while (::waitid(P_PID, static_cast<id_t>(id_), &ignored, WEXITED | WNOWAIT) < 0) {
    if (errno != EINTR) break;
  }
  // Before the number of the group is free for another.
  kill_group(SIGKILL);
  end_guard();
  end_ = reap(id_);
  return *end_;
}

std::optional<ProcessEnd> Subprocess::try_wait() {
  pollfd ended{.fd = pidfd(), .events = POLLIN, .revents = 0};
  if (running() && ::poll(&ended, 1, 0) != 1) return std::nullopt;
  return wait();
}

std::vector<std::string> environment_without(std::string_view prefix) {
  std::vector<std::string> kept;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with(prefix)) kept.emplace_back(*variable);
  }
  return kept;
}

namespace {

// Of a line of /proc/PID/stat (proc(5)): the fifth value is the group, the 24th the resident pages.
// The second is a name in brackets that may hold anything.
std::uint64_t resident_pages(const std::string& stat, pid_t group) {
  constexpr int kGroup = 5, kResident = 24;
  std::istringstream values(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string value;
  for (int number = 3; values >> value; ++number) {
    if (number == kGroup && value != std::to_string(group)) return 0;
    if (number != kResident) continue;
    std::uint64_t pages = 0;
    std::from_chars(value.data(), value.data() + value.size(), pages);
    return pages;
  }
  return 0;  // it has ended meanwhile
}

}  // namespace

std::uint64_t resident_bytes_of_group(pid_t group) {
  namespace fs = std::filesystem;
  std::uint64_t pages = 0;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry->path() / "stat");
    std::string line;
    if (std::getline(file, line)) pages += resident_pages(line, group);
  }
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace starling
