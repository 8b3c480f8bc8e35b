// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/coordinator_shell.h"

#include <fmt/format.h>

#include "coordinator/machine/repetition.h"
#include "coordinator/rounds/run_records.h"
#include "core/base/check.h"
#include "core/base/counted.h"

namespace starling::coordinator {
namespace {

// Deadlines are looked at so often at most, so that a frame does not cost a new timer.
constexpr Duration kClockResolution = std::chrono::milliseconds(5);

store::RunState to_record(FinishRun::State state) {
  switch (state) {
    case FinishRun::State::kCompleted:
      return store::RunState::kCompleted;
    case FinishRun::State::kFailed:
      return store::RunState::kFailed;
    case FinishRun::State::kStopped:
      return store::RunState::kStopped;
  }
  return store::RunState::kFailed;
}

// Whether it may pass what waits for the disk: it says nothing of the store and cannot fail. No
// chunk comes of a phase that is not durable yet, and its bytes belong to the frame that brought
// it.
bool needs_no_disk(const Action& action) {
  const auto* send = std::get_if<Send>(&action);
  if (send == nullptr) {
    return std::holds_alternative<CloseSession>(action) ||
           std::holds_alternative<WriteUpload>(action) ||
           std::holds_alternative<StopEvaluation>(action);
  }
  const protocol::Message& message = send->envelope.message;
  return std::holds_alternative<protocol::Pong>(message) ||
         std::holds_alternative<protocol::Welcome>(message) ||
         std::holds_alternative<protocol::Bye>(message) ||
         std::holds_alternative<protocol::Chunk>(message) ||
         std::holds_alternative<protocol::Credit>(message);
}

}  // namespace

CoordinatorShell::CoordinatorShell(const Parts& parts, Options options, Handlers handlers)
    : parts_(parts),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      machine_(options_.machine),
      retry_(parts.scheduler.make_timer([this] { try_again(); })),
      clock_timer_(parts.scheduler.make_timer([this] { look_at_clock(); })) {}

void CoordinatorShell::handle(Event event) {
  if (broken_) return;
  std::vector<Action> passing;
  for (Action& action : machine_.on(std::move(event), machine_now())) {
    if (held_since_ && needs_no_disk(action)) {
      passing.push_back(std::move(action));
    } else if (!is_dispensable(action) && !replaces_held(action)) {
      actions_.push_back(std::move(action));
    }
  }
  for (Action& action : passing) {
    const auto done = perform_now(action);
    STARLING_CHECK(done);
  }
  perform_all();
  if (!std::exchange(clock_due_, true)) {
    clock_timer_->set(parts_.scheduler.now() + kClockResolution);
  }
}

// A client may ask any number of times, and asks again when it connects.
bool CoordinatorShell::is_dispensable(const Action& action) const {
  if (!held_since_ || actions_.size() < options_.held_actions_max / 2) return false;
  if (const auto* send = std::get_if<Send>(&action)) {
    return std::holds_alternative<protocol::UpdateReceived>(send->envelope.message) ||
           std::holds_alternative<protocol::TaskEnded>(send->envelope.message);
  }
  return std::holds_alternative<LookUpTask>(action) ||
         std::holds_alternative<RecordTraffic>(action);
}

// A client may offer its update any number of times: only the last offer of a task waits.
bool CoordinatorShell::replaces_held(const Action& action) {
  if (!held_since_) return false;
  if (const auto* drop = std::get_if<DropUpload>(&action)) held_opens_.erase(drop->task);
  const auto* open = std::get_if<OpenUpload>(&action);
  return open != nullptr && !held_opens_.insert_or_assign(open->task, *open).second;
}

TimePoint CoordinatorShell::machine_now() const {
  return held_since_.value_or(parts_.scheduler.now()) - held_before_;
}

std::optional<TimePoint> CoordinatorShell::heard_at(const std::string& client) const {
  const auto heard = machine_.clients().heard_at(client);
  if (!heard) return std::nullopt;
  return *heard + (parts_.scheduler.now() - machine_now());
}

std::string CoordinatorShell::waits_for_disk(RunId run) const {
  return held_since_ && runs_.contains(run) ? held_by_ : "";
}

void CoordinatorShell::start_run(const LoadedRun& run, RunStart start) {
  runs_[start.id] = {run.context,
                     {.rounds = static_cast<Round>(start.job.job.rounds),
                      .keep = static_cast<std::uint32_t>(start.job.checkpoint.keep),
                      .metric = metric_of(start.job.stop),
                      .settings = std::make_shared<const std::string>(run.context->job_settings()),
                      .context = run.context},
                     start.job.aggregation.joint_rule() != nullptr};
  handle(RunSubmitted{std::move(start)});
}

void CoordinatorShell::look_at_clock() {
  clock_due_ = false;
  const auto deadline = machine_.next_deadline();
  if (!deadline || broken_ || held_since_) return;
  if (*deadline <= machine_now()) return handle(Tick{});
  clock_timer_->set(*deadline + held_before_);
}

void CoordinatorShell::try_again() {
  held_before_ += parts_.scheduler.now() - *std::exchange(held_since_, std::nullopt);
  perform_all();
  look_at_clock();
}

void CoordinatorShell::perform_all() {
  if (performing_ || broken_) return;
  performing_ = true;
  while (!actions_.empty() && !held_since_ && !broken_) {
    Action action = std::move(actions_.front());
    actions_.pop_front();
    const auto done = perform_now(action);
    if (done) {
      times_held_ = 0;
      continue;
    }
    actions_.push_front(std::move(action));
    hold(done.error());
  }
  performing_ = false;
}

Result<void> CoordinatorShell::perform_now(Action& action) {
  return std::visit([this](auto& a) { return perform(a); }, action);
}

void CoordinatorShell::hold(const Error& error) {
  Error reason = error;
  if (actions_.size() > options_.held_actions_max) {
    reason = internal("disk-full", fmt::format("{} actions wait for the disk, which is the limit: "
                                               "{}",
                                               actions_.size(), error.message()));
  }
  if (reason.kind() != ErrorKind::kOverloaded) return break_down(reason);
  if (is_logged(++times_held_)) {
    parts_.log.error("waiting for the disk: {}", reason.message());
  }
  held_since_ = parts_.scheduler.now();
  held_by_ = reason.message();
  retry_->set(parts_.scheduler.now() + options_.disk_retry);
}

void CoordinatorShell::break_down(const Error& error) {
  broken_ = true;
  handlers_.on_broken(error);
}

// --- clients ------------------------------------------------------------------------------------

Result<void> CoordinatorShell::perform(Send& action) {
  if (auto* welcome = std::get_if<protocol::Welcome>(&action.envelope.message)) {
    const auto now = parts_.clock.wall_now().time_since_epoch();
    welcome->wall_time_ms = static_cast<std::uint64_t>(now.count());
  }
  parts_.sessions.send(action.session, action.envelope);
  const auto* welcomed = std::get_if<protocol::Welcome>(&action.envelope.message);
  if (welcomed && parts_.sessions.is_open(action.session)) {
    handlers_.on_welcomed(action.session, welcomed->client);
  }
  return {};
}

Result<void> CoordinatorShell::perform(CloseSession& action) {
  parts_.sessions.close(action.session, action.code, action.message);
  return {};
}

Result<void> CoordinatorShell::perform(ClientSeen& action) {
  auto stored = parts_.store.record_seen(action.client, parts_.clock.wall_now(), action.greeting);
  if (stored || stored.error().kind() != ErrorKind::kInternal) return {};
  return stored;
}

Result<void> CoordinatorShell::perform(LookUpTask& action) {
  STARLING_ASSIGN(auto message, settle_task(parts_.store, action.task, action.client));
  if (message) handle(TaskLookedUp{action.session, std::move(*message)});
  return {};
}

Result<void> CoordinatorShell::perform(Say& action) {
  parts_.run_log.say(action.run, action.line);
  return {};
}

// --- uploads ------------------------------------------------------------------------------------

Result<void> CoordinatorShell::perform(OpenUpload& action) {
  if (const auto latest = held_opens_.extract(action.task)) action = latest.mapped();
  auto received =
      parts_.uploads.open({action.task, action.run, action.bytes, action.checksum}, machine_now());
  if (!received) {
    if (auto refusal = never_has_room(action.run, received.error())) received = std::move(*refusal);
  }
  handle(UploadOpened{action.task, std::move(received)});
  for (const TaskId task : parts_.uploads.take_stalled()) handle(UploadStalled{task});
  return {};
}

// An update waits for the room of others. Where all of them are kept until the phase ends, and the
// phase waits for this one, it would wait until the deadline.
std::optional<Error> CoordinatorShell::never_has_room(RunId run, const Error& error) const {
  const auto kept = kept_.find(run);
  if (error.kind() != ErrorKind::kOverloaded || kept == kept_.end()) return std::nullopt;
  if (kept->second.size() < parts_.uploads.size()) return std::nullopt;
  return rejected(
      "spool-full",
      fmt::format("{}; that is {}, all of which aggregation.rule = '{}' needs at once: raise "
                  "spool.disk-bytes or spool.memory-bytes, or lower round.cohort",
                  error.message(), counted(kept->second.size(), "update"),
                  runs_.at(run).context->job.aggregation.rule));
}

void CoordinatorShell::release_updates(RunId run) {
  const auto kept = kept_.extract(run);
  if (kept.empty()) return;
  for (const TaskId task : kept.mapped()) parts_.uploads.end_sum(task, true);
}

Result<void> CoordinatorShell::perform(WriteUpload& action) {
  parts_.uploads.write(action.task, action.offset, action.bytes, machine_now());
  return {};
}

Result<void> CoordinatorShell::perform(DropUpload& action) {
  parts_.uploads.drop(action.task);
  return {};
}

Result<void> CoordinatorShell::perform(SumUpload& action) {
  const TaskId task = action.head.task;
  // Scalars alone were no upload.
  auto payload = action.head.payload_bytes > 0 ? parts_.uploads.begin_sum(task) : update::Payload();
  if (!payload) {
    handle(UploadSummed{task, payload.error()});
    return {};
  }
  const bool keeps = action.head.payload_bytes > 0 && runs_.at(action.run).keeps_updates;
  parts_.executor.add(action.run, std::move(action.head), std::move(*payload),
                      [this, task, run = action.run, keeps](Result<double> done) {
                        if (!done && done.error().kind() == ErrorKind::kInternal) {
                          return break_down(done.error());
                        }
                        const bool damaged_here = !done && is_damaged_here(task, done.error());
                        if (done && keeps) {
                          kept_[run].insert(task);
                        } else {
                          parts_.uploads.end_sum(task, done.has_value());
                        }
                        handle(UploadSummed{task, std::move(done), damaged_here});
                      });
  return {};
}

// Whether the bytes were damaged here, after the client had sent them correctly.
bool CoordinatorShell::is_damaged_here(TaskId task, const Error& error) const {
  if (error.code() == "upload-unreadable") {
    parts_.log.error("{}", error.message());
    return true;
  }
  return error.code() == "checksum-mismatch" && parts_.uploads.is_resumed(task);
}

// Not worth stopping for: a full disk loses a count.
Result<void> CoordinatorShell::perform(RecordTraffic& action) {
  auto stored = parts_.store.record_traffic(
      {action.run, action.round, action.attempt, coordinator::to_record(action.kind)},
      action.bytes_in, action.bytes_out);
  if (stored || stored.error().kind() != ErrorKind::kInternal) return {};
  return stored;
}

// --- runs and rounds ----------------------------------------------------------------------------

Result<void> CoordinatorShell::perform(BeginRound& action) {
  if (!action.resumed) {
    STARLING_TRY(
        parts_.store.open_attempt(coordinator::to_record(action, parts_.clock.wall_now())));
  }
  const HeldRun& run = runs_.at(action.run);
  parts_.committer.begin(action.run, run.plan);
  handlers_.on_round_began(action.run, run.context->job);
  if (run.keeps_updates && action.kind == protocol::TaskKind::kTrain) {
    const auto cohort = static_cast<std::size_t>(run.context->job.round.cohort);
    parts_.uploads.expect_together(action.run, std::min(cohort, action.participants.size()),
                                   update::payload_bytes_max(action.schema.vectors));
  }
  parts_.executor.begin(run.context, std::move(action));
  return {};
}

Result<void> CoordinatorShell::perform(CommitRound& action) {
  parts_.committer.commit(std::move(action.summary));
  return {};
}

Result<void> CoordinatorShell::perform(StopEvaluation& action) {
  parts_.executor.stop_evaluation(action.run);
  return {};
}

Result<void> CoordinatorShell::perform(AbandonRound& action) {
  const RoundSummary& summary = action.summary;
  STARLING_TRY(parts_.store.abandon_attempt(key_of(summary),
                                            coordinator::to_record(summary, nullptr),
                                            {action.reason.code(), action.reason.message()}));
  parts_.committer.abandon(summary.run);
  // Whatever is being added still is done before.
  parts_.executor.drop(summary.run, [this, run = summary.run] { release_updates(run); });
  handlers_.on_round_abandoned(summary);
  if (action.is_repetition) return {};
  for (const std::string& line : round_lines(summary, nullptr, runs_.at(summary.run).plan.rounds)) {
    parts_.run_log.say(summary.run, line);
  }
  return {};
}

Result<void> CoordinatorShell::perform(RunWaits&) {
  handlers_.on_run_waits();
  return {};
}

Result<void> CoordinatorShell::perform(FinishRun& action) {
  store::RunEnd end{.state = to_record(action.state)};
  if (action.error) {
    end.error_code = action.error->code();
    end.error = action.error->message();
  }
  STARLING_TRY(parts_.store.finish_run(action.run, end, parts_.clock.wall_now()));
  parts_.run_log.say(action.run, end_line(end));
  runs_.erase(action.run);
  handlers_.on_run_ended(action.run);
  return {};
}

}  // namespace starling::coordinator
