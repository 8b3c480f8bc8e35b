// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/round_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/counted.h"

namespace starling::coordinator {
namespace {

std::string_view result_of(protocol::TaskKind kind) {
  return kind == protocol::TaskKind::kTrain ? "update" : "evaluation";
}

Error late(const RoundMachine::Task& task, protocol::TaskKind kind, Duration elapsed) {
  const std::string doing = task.state == RoundMachine::State::kOffered
                                ? "its upload was not complete"
                                : fmt::format("no {} came", result_of(kind));
  return timed_out(std::string(kDeadline),
                   fmt::format("{} within {:.1f} s", doing, to_seconds(elapsed)));
}

Error not_needed(std::size_t wanted, protocol::TaskKind kind) {
  return retry("round-closed", fmt::format("the round closed with the {} that it wanted",
                                           counted(wanted, result_of(kind))));
}

}  // namespace

RoundMachine::RoundMachine(Options options, const std::vector<Participant>& participants,
                           TimePoint now)
    : options_(options), started_(now), bytes_in_(options.bytes_in), bytes_out_(options.bytes_out) {
  STARLING_CHECK(!participants.empty() && options_.updates_wanted > 0);
  for (const Participant& p : participants) {
    tasks_.emplace(p.task, Task{.client = p.client});
    task_of_.emplace(p.client, p.task);
  }
  STARLING_CHECK(tasks_.size() == participants.size() && task_of_.size() == participants.size());
  counts_[static_cast<std::size_t>(State::kAsked)] = tasks_.size();
  work_ = tasks_.size();
}

const std::map<TaskId, RoundMachine::Task>& RoundMachine::tasks() const {
  work_ += tasks_.size();
  return tasks_;
}

RoundMachine::Task& RoundMachine::at(TaskId id) {
  ++work_;
  return tasks_.at(id);
}

const RoundMachine::Task* RoundMachine::find(TaskId id) const {
  ++work_;
  const auto found = tasks_.find(id);
  return found == tasks_.end() ? nullptr : &found->second;
}

const RoundMachine::Task* RoundMachine::find(TaskId id, const std::string& client) const {
  const Task* task = find(id);
  return task != nullptr && task->client == client ? task : nullptr;
}

std::optional<TaskId> RoundMachine::task_of(const std::string& client) const {
  ++work_;
  const auto found = task_of_.find(client);
  return found == task_of_.end() ? std::nullopt : std::optional(found->second);
}

void RoundMachine::enter(Task& task, State state) {
  --counts_[static_cast<std::size_t>(task.state)];
  ++counts_[static_cast<std::size_t>(state)];
  task.state = state;
}

bool RoundMachine::offered(TaskId id, double weight) {
  Task& task = at(id);
  if (task.state != State::kAsked && task.state != State::kOffered) return false;
  enter(task, State::kOffered);
  task.weight = weight;
  return true;
}

bool RoundMachine::received(TaskId id) {
  Task& task = at(id);
  if (task.state != State::kOffered) return false;
  enter(task, State::kWaiting);
  waiting_.push_back(id);
  return true;
}

std::optional<TaskId> RoundMachine::next_to_sum() {
  if (counted() + count(State::kSumming) >= options_.updates_wanted) return std::nullopt;
  while (!waiting_.empty()) {
    const TaskId id = waiting_.front();
    waiting_.pop_front();
    Task& task = at(id);
    if (task.state != State::kWaiting) continue;  // it failed meanwhile
    enter(task, State::kSumming);
    return id;
  }
  return std::nullopt;
}

void RoundMachine::summed(TaskId id, Result<double> norm) {
  Task& task = at(id);
  STARLING_CHECK(task.state == State::kSumming);
  enter(task, norm ? State::kCounted : State::kFailed);
  if (norm) {
    task.norm = *norm;
  } else {
    task.failure = norm.error();
  }
}

bool RoundMachine::failed(TaskId id, Error reason) {
  Task& task = at(id);
  if (task.state != State::kAsked && task.state != State::kOffered &&
      task.state != State::kWaiting) {
    return false;
  }
  enter(task, State::kFailed);
  task.failure = std::move(reason);
  return true;
}

void RoundMachine::interrupted(TaskId id) {
  Task& task = at(id);
  if (task.state == State::kOffered) enter(task, State::kAsked);
}

void RoundMachine::lost(TaskId id) {
  Task& task = at(id);
  STARLING_CHECK(task.state == State::kSumming);
  ++task.times_lost;
  enter(task, State::kAsked);
}

void RoundMachine::count_bytes(TaskId id, std::uint64_t in, std::uint64_t out) {
  Task& task = at(id);
  task.bytes_in += in;
  task.bytes_out += out;
  bytes_in_ += in;
  bytes_out_ += out;
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
                       .kind = options_.kind,
                       .round = options_.round,
                       .attempt = options_.attempt,
                       .committed = !ended && verdict(now) == Verdict::kCommit,
                       .resumed = options_.resumed,
                       .elapsed = now - started_,
                       .bytes_in = bytes_in_,
                       .bytes_out = bytes_out_};
  const bool closed_early = counted() >= options_.updates_wanted;
  work_ += tasks_.size();
  for (auto& [id, task] : tasks_) {
    if (task.state == State::kCounted) {
      summary.contributors.push_back({task.client, id, task.weight, task.norm});
      continue;
    }
    if (!task.failure) {
      task.failure = ended          ? *ended
                     : closed_early ? not_needed(options_.updates_wanted, options_.kind)
                                    : late(task, options_.kind, summary.elapsed);
      enter(task, State::kFailed);
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
