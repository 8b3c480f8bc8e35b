// SPDX-License-Identifier: Apache-2.0
// One phase of one round: which clients were asked, the outcome of each, and when the phase is
// over. Every client ends with exactly one outcome. Sends nothing: RunMachine talks to clients.
// Apart from the first and the last call, the cost of a call does not grow with the cohort, except
// for one lookup by key.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/machine/client_failures.h"
#include "coordinator/machine/client_pauses.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/client/client_machine.h"
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

// Whether a failure of this code says nothing of the client: it was not waited for any longer, or
// not needed. Other codes are of the client's own making; of an evaluation, which is short beside a
// training, also a missed deadline and an absence that outlasted the grace.
bool is_circumstance(std::string_view code, protocol::TaskKind kind);

// A client's update waited for room in the coordinator's spool until the deadline.
inline constexpr std::string_view kNoRoom = "no-room";

// A client's update brought fewer bytes in such a time while others waited for its room, and was
// not whole in time.
inline constexpr std::string_view kUploadStalled = "upload-stalled";
inline constexpr Duration kProgressTime = std::chrono::seconds(10);
inline constexpr std::uint64_t kProgressBytes = 64 * 1024;

// An update starts from another model than its task names.
inline constexpr std::string_view kWrongBase = "wrong-base";

// A client stayed away for longer than the grace.
inline constexpr std::string_view kDisconnected = "disconnected";

// Whether a client of this failure kept its attempt waiting until the deadline or for the grace, or
// answered with an update of another model, as an honest one does once after a restore, or had no
// memory for it beside other runs.
// Going away is a miss too: a client that goes away in every round costs each of them the grace,
// and nothing tells it from one whose link is bad. Such an honest client still takes part: every
// update of its own ends its row, it is asked at once when it is back for the first time, and it is
// asked wherever a round could not do without it.
bool is_miss(std::string_view code);

// Counts the trainings of an attempt that were missed; `missed` holds those in a row of each
// client. A failure that the client reports of itself ends its row, as a contribution does. Returns
// the clients that are left out from now on.
template <class Contributions, class Failures>
std::vector<std::string> count_missed(const Contributions& contributions, const Failures& failures,
                                      Round round, ClientPauses& missed) {
  std::vector<std::string> left_out;
  for (const auto& c : contributions) missed.succeeded(c.client);
  for (const auto& f : failures) {
    if (!is_circumstance(f.code, protocol::TaskKind::kTrain)) missed.succeeded(f.client);
    if (is_miss(f.code) && missed.failed(f.client, f.reason, round)) left_out.push_back(f.client);
  }
  return left_out;
}

// The same of evaluations, of which every failure counts that is not a circumstance.
template <class Contributions, class Failures>
std::vector<std::string> count_evaluations(const Contributions& contributions,
                                           const Failures& failures, Round round,
                                           ClientPauses& evaluation_failures) {
  std::vector<std::string> left_out;
  for (const auto& c : contributions) evaluation_failures.succeeded(c.client);
  for (const auto& f : failures) {
    if (is_circumstance(f.code, protocol::TaskKind::kEvaluate)) continue;
    if (evaluation_failures.failed(f.client, f.reason, round)) left_out.push_back(f.client);
  }
  return left_out;
}

// Such an attempt says nothing of its run.
template <class Failures>
bool lacked_room(const Failures& failures) {
  return std::ranges::any_of(failures, [](const auto& f) { return f.code == kNoRoom; });
}

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
