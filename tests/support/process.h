// SPDX-License-Identifier: Apache-2.0
// A child process for tests that run the real programs: its output can be awaited line by line,
// every wait has a deadline, and it never outlives the object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace starling::testing {

class Process {
 public:
  // Standard output and standard error come back together. `arguments[0]` is the program's path.
  explicit Process(const std::vector<std::string>& arguments);
  ~Process();  // SIGKILL, if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Reads until a line contains `text`; false at the deadline or at the end of the output.
  bool wait_for(const std::string& text, std::chrono::seconds deadline = std::chrono::minutes(3));
  // The exit code (128 + n after signal n); nothing at the deadline.
  std::optional<int> wait(std::chrono::seconds deadline = std::chrono::minutes(3));
  void signal(int number) const;
  pid_t id() const { return pid_; }
  // Everything read so far.
  const std::string& output() const { return output_; }

 private:
  bool read_some(std::chrono::steady_clock::time_point until);

  pid_t pid_ = -1;
  int output_fd_ = -1;
  bool ended_ = false;
  std::string output_;
  std::size_t searched_ = 0;
};

struct Finished {
  int exit_code;
  std::string output;
};
// Runs a command to its end; -1 where it takes longer than five minutes.
Finished run(const std::vector<std::string>& arguments);

}  // namespace starling::testing
