// SPDX-License-Identifier: Apache-2.0
// One process of a trainer: lines to it and from it, the memory that it shares, and what it prints.
// Never blocks in a write, and waits in poll() only. Knows no messages.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/subprocess.h"
#include "core/client/tensor_memory.h"
#include "core/client/trainer_output.h"

namespace starling::client {

class TrainerProcess {
 public:
  struct Options {
    std::vector<std::string> command;    // not empty
    std::filesystem::path directory;     // for the shared memory where there is no memfd
    std::uint64_t memory_bytes_max = 0;  // resident, of its group; 0: no limit
    int threads = 1;  // that the libraries of its computation take, where they ask OpenMP
  };
  // How long receive() waits.
  struct Patience {
    TimePoint deadline;
    std::string at_deadline;  // "did not ...", of the error
    const std::atomic<bool>& stop;
  };

  // "trainer-cannot-start". `log` must outlive it.
  [[nodiscard]] static Result<std::unique_ptr<TrainerProcess>> start(const Options& options,
                                                                     Log& log);
  // Kills its group; the last that it printed reaches the log.
  ~TrainerProcess();
  TrainerProcess(const TrainerProcess&) = delete;
  TrainerProcess& operator=(const TrainerProcess&) = delete;

  TensorMemory& memory() { return memory_; }
  // Written when receive() waits, as the trainer reads.
  void send(std::string_view lines) {
    unsent_ += lines;
    output_.forget_last_line();
  }
  // The next line. "stopped" where `stop` became true; the rest leaves nothing to do but to kill
  // it: "trainer-died", "trainer-deadline", "trainer-memory", "trainer-protocol".
  [[nodiscard]] Result<std::string> receive(const Patience& patience);
  // Between two requests: "trainer-died", "trainer-memory", or "trainer-protocol" where it
  // answers without a request.
  [[nodiscard]] Result<void> check_idle();
  // Asks it to end with `farewell` and the end of its descriptor 3, and waits for that so long.
  void stop(std::string_view farewell, Duration grace);

 private:
  struct Pipes;

  TrainerProcess(const Options& options, TensorMemory memory, Pipes pipes,
                 std::unique_ptr<Subprocess> process, Log& log);

  // Waits until something happens, at most so long, and does it.
  void turn(Duration limit);
  void write_requests();
  void read_answers();
  void read_output();
  bool take_line(std::string& line);
  Error died();
  Result<void> check_memory(TimePoint now);

  const std::vector<std::string> command_;
  const std::uint64_t memory_bytes_max_;
  TensorMemory memory_;
  FileDescriptor requests_;
  FileDescriptor requests_reader_;
  FileDescriptor answers_;
  FileDescriptor printed_;
  std::unique_ptr<Subprocess> process_;
  TrainerOutput output_;
  std::string unsent_;
  std::string received_;
  bool answered_ = false;     // at least once
  std::size_t searched_ = 0;  // of `received_`: without the end of a line
  TimePoint answers_closed_ = TimePoint::max();
  TimePoint next_memory_check_ = TimePoint::min();
};

}  // namespace starling::client
