// SPDX-License-Identifier: Apache-2.0
// A trainer's process (TRAINER.md), from one start to the next: started when it is first needed,
// kept running, killed where it breaks the protocol or a limit, and started again after a pause.
// Speaks the protocol; what a task means is process_trainer.h's.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/fields.h"
#include "core/base/log.h"
#include "core/model/parameters.h"

namespace starling::client {

// The `[trainer]` table of edge.toml.
struct TrainerOptions {
  std::vector<std::string> command;  // the program and its arguments; empty: none
  Duration start_deadline = std::chrono::seconds(120);
  Duration task_deadline = std::chrono::hours(1);
  std::uint64_t memory_max = 0;  // MB; 0: no limit
};

template <class V>
void describe(V& visit, TrainerOptions& o) {
  visit("command", o.command,
        FieldInfo{.help = "program that trains models of one's own, and its arguments, as in "
                          "[\"python3\", \"train.py\"]; empty: the built-in models only"});
  visit(
      "start-deadline", o.start_deadline,
      FieldInfo{.help = "from its start until it has described itself", .min = 0.1, .max = 86400});
  visit("task-deadline", o.task_deadline,
        FieldInfo{.help = "longest time for one task", .min = 0.1, .max = 2'592'000});
  visit(
      "memory-max", o.memory_max,
      FieldInfo{.help = "resident memory of its process group; above it, it is killed; 0: no limit",
                .unit = "MB",
                .min = 0,
                .max = 1 << 26});
}

enum class TrainerOperation { kInitialize, kFit, kEvaluate, kGradient };

struct TrainerDescription {
  std::string name;
  std::vector<TrainerOperation> operations;  // kFit among them
  std::uint64_t rows = 0;                    // 0: not said
  std::uint64_t held_out = 0;
  std::shared_ptr<const model::Layout> layout;  // of model::external_layout

  bool can(TrainerOperation operation) const;
};

// "train.py: fit, evaluate; 10 tensors with 199210 values; 600 rows, 100 held out"
std::string summarize(const TrainerDescription& description);

// A task as the protocol has it, but for its tensors.
struct TrainerTask {
  std::string client;
  std::uint32_t round = 0;
  std::uint32_t rounds = 0;
  std::uint64_t seed = 0;  // below 2^53
  std::string train;       // JSON objects
  std::string settings = "{}";
};

// What fit, evaluate and gradient answer; 0 where an operation does not say it.
struct TrainerAnswer {
  double weight = 0;  // of an evaluation or gradient: its rows
  double loss = 0;
  double accuracy = 0;
  std::uint64_t steps = 0;
};

// One thread at a time; that of start() must live as long as the process is to (subprocess.h).
class TrainerHost {
 public:
  struct Options {
    TrainerOptions trainer;
    std::filesystem::path directory;  // the trainer's own; made where it is missing
    std::string client;               // for its first description; empty in a simulation
  };

  // Starts nothing yet. `log` must outlive the host.
  TrainerHost(Options options, Log& log);
  // stop().
  ~TrainerHost();
  TrainerHost(const TrainerHost&) = delete;
  TrainerHost& operator=(const TrainerHost&) = delete;

  // What the trainer said of itself for these settings (a JSON object); asks it where it has not
  // said it since its start. Valid until the next call of the host.
  // Errors of this and of run(): "trainer-cannot-start", "trainer-died", "trainer-deadline",
  // "trainer-memory", "trainer-protocol", "stopped" (`stop` became true, which is looked at often),
  // and of run() the trainer's own code with its sentence. All but its own name the trainer.
  [[nodiscard]] Result<const TrainerDescription*> describe(const std::string& settings,
                                                           const std::atomic<bool>& stop);

  // Does the task. `parameters` and `result`, both [d], must not overlap; either is empty where the
  // operation has none. Checks that numbers and results are finite and in range
  // ("trainer-protocol"; "diverged" where a result's value is not finite). `step` is for kGradient;
  // nothing: all rows. Memory: twice the model, kept. Each vector is copied once each way.
  struct Vectors {
    std::span<const float> parameters;
    std::span<float> result;
  };
  [[nodiscard]] Result<TrainerAnswer> run(TrainerOperation operation, const TrainerTask& task,
                                          Vectors vectors, const std::atomic<bool>& stop,
                                          std::optional<std::uint64_t> step = std::nullopt);

  // Ends the process: asks it, and kills its group two seconds later. The next call starts another.
  void stop();

 private:
  class Process;

  const Options options_;
  Log& log_;
  std::unique_ptr<Process> process_;
};

}  // namespace starling::client
