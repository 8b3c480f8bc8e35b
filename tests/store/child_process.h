// SPDX-License-Identifier: Apache-2.0
// Test code in a process of its own, to be killed or to live on a disk of its own. The test program
// has one thread, so a fork is safe.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "core/base/check.h"

namespace starling::store {

class ChildProcess {
 public:
  // `body` gives the exit code; it gets the writing end of a pipe.
  explicit ChildProcess(const std::function<int(int pipe)>& body) {
    int ends[2];
    STARLING_CHECK(::pipe(ends) == 0);
    process_ = ::fork();
    STARLING_CHECK(process_ >= 0);
    if (process_ == 0) {
      ::close(ends[0]);
      ::_exit(body(ends[1]));
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  ~ChildProcess() {
    if (process_ > 0) kill_and_wait();
    ::close(pipe_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The next number that the child wrote; negative when it has ended.
  int read() const {
    int number = -1;
    return ::read(pipe_, &number, sizeof number) == sizeof number ? number : -1;
  }
  void kill_and_wait() {
    ::kill(process_, SIGKILL);
    wait();
  }
  int wait() {
    int status = 0;
    STARLING_CHECK(::waitpid(process_, &status, 0) == process_);
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t process_ = 0;
  int pipe_ = -1;
};

inline void send(int pipe, int number) {
  STARLING_CHECK(::write(pipe, &number, sizeof number) == sizeof number);
}

}  // namespace starling::store
