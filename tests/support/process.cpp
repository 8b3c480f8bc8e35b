// SPDX-License-Identifier: Apache-2.0
#include "tests/support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>

#include "core/base/check.h"

extern char** environ;

namespace starling::testing {

using Clock = std::chrono::steady_clock;

Process::Process(const std::vector<std::string>& arguments) {
  int ends[2];
  STARLING_CHECK(::pipe2(ends, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int failed = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  output_fd_ = ends[0];
  if (failed != 0) pid_ = -1;
}

Process::~Process() {
  if (pid_ > 0 && !ended_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(output_fd_);
}

bool Process::read_some(Clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
  if (left.count() <= 0) return false;
  pollfd waiting{.fd = output_fd_, .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return false;
  char buffer[4096];
  const ssize_t count = ::read(output_fd_, buffer, sizeof buffer);
  if (count <= 0) return false;
  output_.append(buffer, static_cast<std::size_t>(count));
  return true;
}

bool Process::wait_for(const std::string& text, std::chrono::seconds deadline) {
  const auto until = Clock::now() + deadline;
  for (;;) {
    const std::size_t found = output_.find(text, searched_);
    if (found != std::string::npos) {
      searched_ = found + text.size();
      return true;
    }
    if (!read_some(until)) return false;
  }
}

std::optional<int> Process::wait(std::chrono::seconds deadline) {
  if (pid_ < 0) return 127;
  const auto until = Clock::now() + deadline;
  while (read_some(until)) {
  }
  if (Clock::now() >= until) return std::nullopt;
  int status = 0;  // the output's end is the process's end
  ::waitpid(pid_, &status, 0);
  ended_ = true;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void Process::signal(int number) const {
  if (pid_ > 0 && !ended_) ::kill(pid_, number);
}

Finished run(const std::vector<std::string>& arguments) {
  Process process(arguments);
  const auto code = process.wait(std::chrono::minutes(5));
  return {code.value_or(-1), process.output()};
}

}  // namespace starling::testing
