// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/round_committer.h"

#include <fmt/format.h>

#include "coordinator/machine/repetition.h"
#include "coordinator/rounds/run_records.h"
#include "core/base/check.h"

namespace starling::coordinator {
namespace {

constexpr Duration kSlowEvaluation = std::chrono::seconds(30);

}  // namespace

RoundCommitter::RoundCommitter(Parts parts, Duration disk_retry, Handlers handlers)
    : parts_(std::move(parts)), disk_retry_(disk_retry), handlers_(std::move(handlers)) {}

void RoundCommitter::begin(RunId run, Plan plan) { begun_[run] = {plan, parts_.clock.now()}; }

void RoundCommitter::commit(RoundSummary summary) {
  const RunId run = summary.run;
  // How long it took, also where the machine's time is virtual.
  summary.elapsed = parts_.clock.now() - begun_.at(run).at;
  const auto [commit, is_new] = commits_.emplace(run, Commit{std::move(summary)});
  STARLING_CHECK(is_new);
  watch_trainer(run, commit->second);
  parts_.executor.finish(
      run, [this, run](Result<RoundOutcome> outcome) { computed(run, std::move(outcome)); });
}

void RoundCommitter::watch_trainer(RunId run, Commit& commit) {
  const RunContext* const context = begun_.at(run).plan.context.get();
  const bool trains = commit.summary.kind == protocol::TaskKind::kTrain;
  if (parts_.external == nullptr || context == nullptr || !trains) return;
  if (!context->evaluates_by_trainer(commit.summary.round)) return;
  const TimePoint now = parts_.scheduler.now();
  commit.evaluated_since = now;
  commit.slow = parts_.scheduler.make_timer([this, run] { say_slow(run); });
  commit.slow->set(now + kSlowEvaluation);
}

std::string RoundCommitter::trainer_time(const Commit& commit) const {
  const Duration time = parts_.scheduler.now() - commit.evaluated_since.value();
  return format_duration(std::chrono::round<std::chrono::seconds>(time));
}

std::string RoundCommitter::waits_for_trainer(RunId run) const {
  const auto commit = commits_.find(run);
  if (commit == commits_.end() || !commit->second.evaluated_since) return "";
  const auto other = parts_.external->at_work_for();
  const std::string trainer =
      other && *other != run
          ? fmt::format("the coordinator's trainer, which is at work for run {}", other->value())
          : "its evaluation by the coordinator's trainer";
  return fmt::format("{}, for {} so far", trainer, trainer_time(commit->second));
}

void RoundCommitter::say_slow(RunId run) {
  commits_.at(run).is_slow = true;
  say_of_round(
      run, fmt::format("waiting for {}; 'run stop' does not wait for it", waits_for_trainer(run)));
}

void RoundCommitter::trainer_done(RunId run, bool measured) {
  Commit& commit = commits_.at(run);
  commit.slow.reset();
  if (std::exchange(commit.is_slow, false)) {
    say_of_round(run, fmt::format("the evaluation by the coordinator's trainer {} after {}",
                                  measured ? "is done" : "was given up", trainer_time(commit)));
  }
  commit.evaluated_since.reset();
}

void RoundCommitter::say_of_round(RunId run, const std::string& what) {
  parts_.run_log.say(run, fmt::format("[round {}/{}] {}", commits_.at(run).summary.round,
                                      begun_.at(run).plan.rounds, what));
}

void RoundCommitter::computed(RunId run, Result<RoundOutcome> outcome) {
  handlers_.on_computed(run);
  trainer_done(run, outcome && outcome->measured);
  if (!outcome && outcome.error().kind() == ErrorKind::kInternal) {  // an update is unreadable
    return handlers_.on_broken(outcome.error());
  }
  if (!outcome) {
    commits_.erase(run);
    begun_.erase(run);
    return handlers_.on_durable({run, outcome.error()});
  }
  Commit& commit = commits_.at(run);
  commit.outcome = std::move(*outcome);
  if (commit.outcome.next) return write(run);
  store(run);
}

void RoundCommitter::write(RunId run) {
  parts_.executor.write(
      parts_.checkpoints(run), *commits_.at(run).outcome.next, begun_.at(run).plan.settings,
      [this, run](Result<store::ModelRecord> model) { written(run, std::move(model)); });
}

void RoundCommitter::written(RunId run, Result<store::ModelRecord> model) {
  if (!model) return check(run, model.error(), [this, run] { write(run); });
  commits_.at(run).model = *model;
  store(run);
}

void RoundCommitter::store(RunId run) {
  Commit& commit = commits_.at(run);
  const store::AttemptKey key = key_of(commit.summary);
  const store::AttemptResult record = to_record(commit.summary, &commit.outcome);
  const auto result = commit.model ? parts_.store.commit_attempt(key, record, *commit.model)
                                   : parts_.store.commit_evaluation(key, record);
  if (result) return stored(run);
  check(run, result.error(), [this, run] { commits_.at(run).model ? write(run) : store(run); });
}

void RoundCommitter::check(RunId run, const Error& error, std::function<void()> again) {
  Commit& commit = commits_.at(run);
  const Round round = commit.summary.round;
  if (error.kind() != ErrorKind::kOverloaded) {
    return handlers_.on_broken(error.within(fmt::format("round {}", round)));
  }
  commit.waits_for = error.message();
  if (is_logged(++commit.retries)) {
    say_of_round(run, "waiting for the disk: " + error.message());
  }
  commit.retry = parts_.scheduler.make_timer(std::move(again));
  commit.retry->set(parts_.scheduler.now() + disk_retry_);
}

std::string RoundCommitter::waits_for_disk(RunId run) const {
  const auto commit = commits_.find(run);
  return commit == commits_.end() ? "" : commit->second.waits_for;
}

void RoundCommitter::stored(RunId run) {
  const Commit commit = std::move(commits_.extract(run).mapped());
  const Plan plan = begun_.extract(run).mapped().plan;
  std::vector<std::string> lines = round_lines(commit.summary, &commit.outcome, plan.rounds);
  handlers_.on_committed(commit.summary, commit.outcome, lines);
  for (const std::string& line : lines) parts_.run_log.say(run, line);
  prune(run, plan);  // an evaluation may have found another best model
  handlers_.on_durable({run, Durable{commit.outcome.next, commit.outcome.measured}});
}

void RoundCommitter::prune(RunId run, const Plan& plan) {
  const auto pruned =
      store::prune(parts_.store, parts_.checkpoints(run), run, plan.keep, plan.metric);
  if (!pruned) parts_.log.warning("old models stay for now: {}", pruned.error().message());
}

}  // namespace starling::coordinator
