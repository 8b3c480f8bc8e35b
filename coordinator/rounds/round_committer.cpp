// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/round_committer.h"

#include <fmt/format.h>

#include "coordinator/machine/repetition.h"
#include "coordinator/rounds/run_records.h"
#include "core/base/check.h"

namespace starling::coordinator {

RoundCommitter::RoundCommitter(Parts parts, Duration disk_retry, Handlers handlers)
    : parts_(std::move(parts)), disk_retry_(disk_retry), handlers_(std::move(handlers)) {}

void RoundCommitter::begin(RunId run, Plan plan) { begun_[run] = {plan, parts_.clock.now()}; }

void RoundCommitter::commit(RoundSummary summary) {
  const RunId run = summary.run;
  // How long it took, also where the machine's time is virtual.
  summary.elapsed = parts_.clock.now() - begun_.at(run).at;
  const bool is_new = commits_.emplace(run, Commit{std::move(summary)}).second;
  STARLING_CHECK(is_new);
  parts_.executor.finish(
      run, [this, run](Result<RoundOutcome> outcome) { computed(run, std::move(outcome)); });
}

void RoundCommitter::computed(RunId run, Result<RoundOutcome> outcome) {
  handlers_.on_computed(run);
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
    parts_.run_log.say(run, fmt::format("[round {}/{}] waiting for the disk: {}", round,
                                        begun_.at(run).plan.rounds, error.message()));
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
