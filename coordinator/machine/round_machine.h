// SPDX-License-Identifier: Apache-2.0
// One phase of one round: which clients were asked, the outcome of each, and when the phase is
// over. Every client ends with exactly one outcome. Sends nothing: RunMachine talks to clients.
// Apart from the first and the last call, the cost of a call does not grow with the cohort, except
// for one lookup by key.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/machine/failure_codes.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/protocol/messages.h"

namespace starling::coordinator {

struct Participant {
  std::string client;
  TaskId task;
  friend bool operator==(const Participant&, const Participant&) = default;
};

struct Contributor {
  std::string client;
  TaskId task;
  double weight = 0;
  double norm = 0;  // Euclidean, of all its vectors
  friend bool operator==(const Contributor&, const Contributor&) = default;
};

struct RoundFailure {
  std::string client;
  std::string code;
  std::string reason;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  friend bool operator==(const RoundFailure&, const RoundFailure&) = default;
};

// What an attempt came to, ordered by client name.
struct RoundSummary {
  RunId run;
  protocol::TaskKind kind = protocol::TaskKind::kTrain;
  Round round = 0;
  Attempt attempt = 0;
  bool committed = false;  // false: abandoned
  bool resumed = false;    // `elapsed` counts from the restart of the coordinator
  std::vector<Contributor> contributors;
  std::vector<RoundFailure> failures;
  Duration elapsed{};
  std::uint64_t bytes_in = 0;   // payload of updates received
  std::uint64_t bytes_out = 0;  // payload of models sent
};

class RoundMachine {
 public:
  struct Options {
    RunId run;
    protocol::TaskKind kind = protocol::TaskKind::kTrain;
    Round round = 1;
    Attempt attempt = 1;
    std::size_t updates_wanted = 1;  // closes at once with so many
    std::size_t updates_needed = 1;  // fewer at the end: abandoned
    Duration deadline{};
    bool resumed = false;        // begun by an earlier process
    std::uint64_t bytes_in = 0;  // of this attempt, by an earlier process
    std::uint64_t bytes_out = 0;
  };
  enum class State {
    kAsked,    // plan sent or to be sent
    kOffered,  // uploading
    kWaiting,  // received whole; there is no room in the sum unless another one fails
    kSumming,  // received whole, being validated and added
    kCounted,  // in the sum
    kFailed,
  };
  static constexpr std::size_t kStates = 6;
  struct Task {
    std::string client;
    State state = State::kAsked;
    double weight = 0;
    double norm = 0;  // once counted
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    std::size_t times_lost = 0;
    std::optional<Error> failure;
  };

  RoundMachine(Options options, const std::vector<Participant>& participants, TimePoint now);

  const Options& options() const { return options_; }
  TimePoint deadline() const { return started_ + options_.deadline; }
  // For a walk over all tasks: it counts as one in work().
  const std::map<TaskId, Task>& tasks() const;
  // Null if the task is not of this attempt.
  const Task* find(TaskId task) const;
  // The task of that id if it was issued to `client`; else null.
  const Task* find(TaskId task, const std::string& client) const;
  std::optional<TaskId> task_of(const std::string& client) const;

  // Each returns false where the task is not in a state for it (a repeated or late message).
  bool offered(TaskId task, double weight);
  bool received(TaskId task);              // all bytes are there; to be summed
  bool failed(TaskId task, Error reason);  // not what is being summed or counted
  // The upload whose turn it is to be added, which is kSumming from now on: in order of arrival,
  // and no more than are wanted.
  std::optional<TaskId> next_to_sum();
  // How the summing ended: counted, with the update's norm, or refused as a whole. Requires: state
  // is kSumming.
  void summed(TaskId task, Result<double> norm);
  // A transfer broke off; the client may offer again.
  void interrupted(TaskId task);
  // What was received could not be stored, or turned out to be damaged; the client may offer again.
  // Requires: state is kSumming.
  void lost(TaskId task);
  void count_bytes(TaskId task, std::uint64_t in, std::uint64_t out);
  std::uint64_t bytes_in() const { return bytes_in_; }
  std::uint64_t bytes_out() const { return bytes_out_; }

  // How many tasks were looked at so far, which is what the calls have cost.
  std::uint64_t work() const { return work_; }

  std::size_t asked() const { return tasks_.size(); }
  std::size_t counted() const { return count(State::kCounted); }
  bool summing() const { return count(State::kSumming) > 0; }

  enum class Verdict { kOpen, kCommit, kAbandon };
  // Open while something is being summed, or while more may come.
  Verdict verdict(TimePoint now) const;
  // Those that did not count get their reason here. Requires: verdict is not kOpen, or `ended` says
  // why an open round ends without a model.
  RoundSummary close(TimePoint now, const std::optional<Error>& ended = std::nullopt);

 private:
  std::size_t count(State state) const { return counts_[static_cast<std::size_t>(state)]; }
  Task& at(TaskId id);
  void enter(Task& task, State state);

  Options options_;
  TimePoint started_;
  std::map<TaskId, Task> tasks_;
  std::unordered_map<std::string, TaskId> task_of_;
  std::array<std::size_t, kStates> counts_{};  // of tasks, by state
  std::deque<TaskId> waiting_;                 // in order of arrival; those that failed too
  std::uint64_t bytes_in_;
  std::uint64_t bytes_out_;
  mutable std::uint64_t work_ = 0;
};

}  // namespace starling::coordinator
