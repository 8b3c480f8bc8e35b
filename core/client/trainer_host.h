// SPDX-License-Identifier: Apache-2.0
// A trainer's process (TRAINER.md), from one start to the next: started when it is first needed,
// kept running, killed where it breaks the protocol or a limit, and started again after a pause.
// Speaks the protocol; what a task means is process_trainer.h's.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/fields.h"
#include "core/base/log.h"
#include "core/client/trainer_messages.h"

namespace starling::client {

// The `[trainer]` table of edge.toml and of coordinator.toml.
struct TrainerOptions {
  std::vector<std::string> command;  // the program and its arguments; empty: none
  Duration start_deadline = std::chrono::seconds(120);
  Duration task_deadline = std::chrono::hours(1);
  std::uint64_t memory_max = 0;  // MB; 0: no limit
};

template <class V>
void describe(V& visit, TrainerOptions& o) {
  visit("command", o.command,
        FieldInfo{.help = "program that computes with models of your own, and its arguments, as in "
                          "[\"python3\", \"train.py\"]; empty: none"});
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

// Of a command line, one program and its arguments as a shell reads them. Somebody watches it, and
// cannot say deadlines: they are wide.
TrainerOptions trainer_of(const std::string& command_line);

class TrainerProcess;

// Whether the trainer itself answered with this error, instead of dying, hanging or answering with
// nonsense: it may answer otherwise for other settings.
bool is_answer(const Error& error);

// A call waits until those of other threads have ended. The thread of the call that starts a
// process must live as long as that process is to (subprocess.h). What it prints between two calls
// is logged at the next.
class TrainerHost {
 public:
  struct Options {
    TrainerOptions trainer;           // with a command
    std::filesystem::path directory;  // the trainer's own; made where it is missing
    std::string client;               // for its first description; empty in a simulation
    int threads = 1;                  // of its computation
    Duration pause_min = std::chrono::seconds(1);
    Duration pause_max = std::chrono::minutes(1);

    // Before the next start, after so many failures since a task succeeded: doubled with each.
    Duration pause_after(int failures) const;
  };

  // Starts nothing yet. `log` must outlive the host.
  TrainerHost(Options options, Log& log);
  // stop().
  ~TrainerHost();
  TrainerHost(const TrainerHost&) = delete;
  TrainerHost& operator=(const TrainerHost&) = delete;

  // What the trainer says of itself for these settings (a JSON object); asks it where it has not
  // said it since its start. `client`: whose rows; empty: Options::client; of others the last is
  // remembered.
  // Errors of this and of run(): "trainer-cannot-start", "trainer-died", "trainer-deadline",
  // "trainer-memory", "trainer-protocol", "stopped" (`stop` became true, which is looked at often),
  // "setting-invalid", "io-error", and the trainer's own code with its sentence. After a failure a
  // call waits for the pause before the next start. A trainer that has not described itself yet
  // when `stop` becomes true goes on with that: its start may take longer than a round.
  [[nodiscard]] Result<TrainerDescription> describe(const std::string& settings,
                                                    const std::atomic<bool>& stop,
                                                    const std::string& client = {});

  // Does the task. Either of `parameters` and `result`, both [d], is empty where the operation has
  // none; they may be the same memory. A gradient whose `result` is empty is computed for its loss.
  // Checks that numbers and results are finite and in range ("trainer-protocol"; "diverged" where
  // one is not finite); "unsupported-operation" where the trainer does not offer it. `step` is for
  // kGradient; nothing: all rows. Memory: twice the model, kept. Each vector is copied once each
  // way.
  struct Vectors {
    std::span<const float> parameters;
    std::span<float> result;
  };
  [[nodiscard]] Result<TrainerAnswer> run(TrainerOperation operation, const TrainerTask& task,
                                          Vectors vectors, const std::atomic<bool>& stop,
                                          std::optional<std::uint64_t> step = std::nullopt);

  // Ends the process: asks it, and kills its group when it has ended, two seconds later at the
  // latest. The next call starts another.
  void stop();

 private:
  using Subject = std::pair<std::string, std::string>;  // client, settings
  struct Question {                                     // a describe without its answer yet
    std::uint64_t id = 0;
    Subject subject;
    TimePoint deadline;
  };

  using Turn = std::unique_lock<std::timed_mutex>;

  Result<Turn> wait_for_turn(const std::atomic<bool>& stop);
  Result<const TrainerDescription*> described(const Subject& subject,
                                              const std::atomic<bool>& stop);
  Result<void> start_where_needed(const std::atomic<bool>& stop);
  Result<void> start();
  Result<void> ask(const Subject& subject);
  Result<void> finish_question(const std::atomic<bool>& stop);
  void remember(const Subject& subject, TrainerDescription description);
  Result<std::string> answer_to(std::uint64_t id, TrainerOperation operation,
                                const std::atomic<bool>& stop);
  Result<void> write_parameters(TensorPlaces& places, Vectors vectors, bool has_result);
  Result<void> read_result(const TensorPlaces& places, TrainerOperation operation,
                           std::span<float> result);
  Error cancelled(std::uint64_t id);
  Error failed(Error error);
  void forget_process();

  const Options options_;
  Log& log_;
  std::timed_mutex turn_;
  std::unique_ptr<TrainerProcess> process_;
  std::uint64_t last_id_ = 0;
  std::optional<Question> question_;
  std::map<Subject, TrainerDescription> described_;  // by this process
  int failures_ = 0;                                 // since a task succeeded
  TimePoint start_at_ = TimePoint::min();
};

}  // namespace starling::client
