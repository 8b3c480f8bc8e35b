// SPDX-License-Identifier: Apache-2.0
#include "coordinator/round_machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"

namespace starling::coordinator {
namespace {

Error missed_deadline(const RoundMachine::Task& task, Duration elapsed) {
  const char* doing = task.state == RoundMachine::State::kOffered ? "its upload was not complete"
                                                                  : "no update came";
  return retry("deadline", fmt::format("{} within {:.1f} s", doing, to_seconds(elapsed)));
}

Error not_needed(std::size_t wanted) {
  return retry("round-closed",
               fmt::format("the round closed with the {} updates that it wanted", wanted));
}

}  // namespace

RoundMachine::RoundMachine(Options options, const std::vector<Participant>& participants,
                           TimePoint now)
    : options_(options), started_(now) {
  STARLING_CHECK(!participants.empty() && options_.updates_wanted > 0);
  for (const Participant& p : participants) tasks_.emplace(p.task, Task{.client = p.client});
  STARLING_CHECK(tasks_.size() == participants.size());
}

const RoundMachine::Task* RoundMachine::find(TaskId task, const std::string& client) const {
  const auto found = tasks_.find(task);
  return found != tasks_.end() && found->second.client == client ? &found->second : nullptr;
}

std::optional<TaskId> RoundMachine::task_of(const std::string& client) const {
  for (const auto& [id, task] : tasks_) {
    if (task.client == client) return id;
  }
  return std::nullopt;
}

bool RoundMachine::offered(TaskId id, double weight) {
  Task& task = tasks_.at(id);
  if (task.state != State::kAsked && task.state != State::kOffered) return false;
  task.state = State::kOffered;
  task.weight = weight;
  return true;
}

bool RoundMachine::received(TaskId id) {
  Task& task = tasks_.at(id);
  if (task.state != State::kOffered) return false;
  task.state = State::kWaiting;
  waiting_.push_back(id);
  return true;
}

std::optional<TaskId> RoundMachine::next_to_sum() {
  if (waiting_.empty() || counted() + count(State::kSumming) >= options_.updates_wanted) {
    return std::nullopt;
  }
  const TaskId id = waiting_.front();
  waiting_.pop_front();
  tasks_.at(id).state = State::kSumming;
  return id;
}

void RoundMachine::summed(TaskId id, Result<void> result) {
  Task& task = tasks_.at(id);
  STARLING_CHECK(task.state == State::kSumming);
  task.state = result ? State::kCounted : State::kFailed;
  if (!result) task.failure = result.error();
}

bool RoundMachine::failed(TaskId id, Error reason) {
  Task& task = tasks_.at(id);
  if (task.state != State::kAsked && task.state != State::kOffered &&
      task.state != State::kWaiting) {
    return false;
  }
  std::erase(waiting_, id);
  task.state = State::kFailed;
  task.failure = std::move(reason);
  return true;
}

void RoundMachine::interrupted(TaskId id) {
  Task& task = tasks_.at(id);
  if (task.state == State::kOffered) task.state = State::kAsked;
}

void RoundMachine::count_bytes(TaskId id, std::uint64_t in, std::uint64_t out) {
  tasks_.at(id).bytes_in += in;
  tasks_.at(id).bytes_out += out;
}

std::size_t RoundMachine::count(State state) const {
  return static_cast<std::size_t>(
      std::count_if(tasks_.begin(), tasks_.end(),
                    [state](const auto& entry) { return entry.second.state == state; }));
}

RoundMachine::Verdict RoundMachine::verdict(TimePoint now) const {
  if (summing()) return Verdict::kOpen;
  const std::size_t done = counted();
  const bool settled = done + count(State::kFailed) == tasks_.size();
  if (done < options_.updates_wanted && !settled && now < deadline()) return Verdict::kOpen;
  return done >= options_.updates_needed ? Verdict::kCommit : Verdict::kAbandon;
}

RoundSummary RoundMachine::close(TimePoint now, const std::optional<Error>& ended) {
  RoundSummary summary{.run = options_.run,
                       .round = options_.round,
                       .attempt = options_.attempt,
                       .committed = !ended && verdict(now) == Verdict::kCommit,
                       .elapsed = now - started_};
  const bool closed_early = counted() >= options_.updates_wanted;
  for (auto& [id, task] : tasks_) {
    summary.bytes_in += task.bytes_in;
    summary.bytes_out += task.bytes_out;
    if (task.state == State::kCounted) {
      summary.contributors.push_back({task.client, id, task.weight});
      continue;
    }
    if (!task.failure && ended) {
      task.failure = ended;
      task.state = State::kFailed;
    } else if (!task.failure) {
      task.failure = closed_early ? not_needed(options_.updates_wanted)
                                  : missed_deadline(task, summary.elapsed);
      task.state = State::kFailed;
    }
    summary.failures.push_back({task.client, task.failure->code(), task.failure->message(),
                                task.bytes_in, task.bytes_out});
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.client < b.client; };
  std::sort(summary.contributors.begin(), summary.contributors.end(), by_name);
  std::sort(summary.failures.begin(), summary.failures.end(), by_name);
  return summary;
}

}  // namespace starling::coordinator
