// SPDX-License-Identifier: Apache-2.0
// A program that this process runs: in a process group of its own, with only the descriptors that
// it is given. It outlives neither this object nor this process, however that ends. The kernel
// notices the end of the *thread* that called start(), and kills the child with it: call start()
// from a thread that lives as long as the child is to.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/file_descriptor.h"

namespace starling {

struct ProcessEnd {
  int exit_code = 0;         // 128 + n after signal n
  std::string text() const;  // "ended with exit code 1", "was ended by signal 9"
};

class Subprocess {
 public:
  struct Descriptor {
    int number = 0;  // in the child
    int source = 0;  // in this process
  };
  struct Options {
    // The first is the program, looked up in PATH where it has no slash. Not empty.
    std::vector<std::string> arguments;
    std::optional<std::vector<std::string>> environment;  // "NAME=value"; nothing: this process's
    // Standard input is /dev/null where it is not among them; output and error are this process's.
    std::vector<Descriptor> descriptors;
    // A shell beside it kills its whole group where this process ends without doing so, even by
    // SIGKILL; else only the program itself goes then.
    bool guarded = false;
  };

  // Returns once the program has begun; "cannot-start" where it cannot be run.
  [[nodiscard]] static Result<std::unique_ptr<Subprocess>> start(const Options& options);
  // SIGKILL to its whole group if it still runs, and waits for it.
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t id() const { return id_; }
  bool running() const { return !end_; }
  // Readable from when the process has ended; wait() does not block then.
  int pidfd() const { return pidfd_.get(); }
  // To its whole group; nothing once its end is known.
  void kill_group(int signal) const;
  // Its end. What it has started itself, in its group, is killed with it.
  ProcessEnd wait();
  std::optional<ProcessEnd> try_wait();  // nothing: it still runs

 private:
  Subprocess(pid_t id, FileDescriptor pidfd) : id_(id), pidfd_(std::move(pidfd)) {}

  void start_guard();
  void end_guard();

  pid_t id_;
  FileDescriptor pidfd_;
  pid_t guard_ = 0;            // 0: none
  FileDescriptor guard_line_;  // closes with this process
  std::optional<ProcessEnd> end_;
};

// This process's environment but for the variables whose names begin with `prefix`.
std::vector<std::string> environment_without(std::string_view prefix);

// The memory that the processes of a group hold, as the kernel counts it: what two of them share
// counts twice.
std::uint64_t resident_bytes_of_group(pid_t group);

}  // namespace starling
