// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/run_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "coordinator/machine/client_exclusion.h"
#include "coordinator/machine/repetition.h"
#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/list_some.h"

namespace starling::coordinator {
namespace {

// "; 4 of 5 failed: 3 norm-above-bound (aggregation.norm-max), 1 deadline"
std::string describe_codes(std::size_t asked, const std::vector<RoundFailure>& failures) {
  if (failures.empty()) return "";
  std::map<std::string_view, std::size_t> codes;
  for (const RoundFailure& failure : failures) ++codes[failure.code];
  std::string text;
  for (const auto& [code, count] : codes) {
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", count, code,
                        code == kNormAboveBound ? " (aggregation.norm-max)"
                        : code == kNoRoom       ? " (in the coordinator's spool or on its disk)"
                                                : "");
  }
  return fmt::format("; {} of {} failed: {}", failures.size(), asked, text);
}

// Clients say at once that they have no memory: the others would send their updates again and
// again.
Duration memory_pause(const PastAttempts& past) {
  const auto excused = static_cast<int>(past.last) - past.failed;
  return std::chrono::seconds(1) * (1 << std::clamp(excused - 1, 0, 8));
}

// Requires: it does not say the metric.
std::string describe_missing(const StopOptions& stop, Round round, const Measured& found) {
  if (stop.name() == "accuracy") {
    return fmt::format(
        "the evaluation of round {} says no accuracy, so stop.metric = '{}' cannot end the run by "
        "it; submit such runs with '{}loss'",
        round, stop.metric, found.federated ? kFederatedPrefix : "");
  }
  constexpr std::size_t kNamed = 10;
  std::vector<std::string> names;
  for (const auto& [name, value] : found.metrics) names.push_back(name);
  return fmt::format(
      "the evaluation of round {} says no '{}' (it says {}), so it does not count for stop.metric "
      "= "
      "'{}'{}",
      round, stop.name(),
      found.metrics.empty() ? "no metrics" : list_some(names, kNamed, std::identity()), stop.metric,
      found.federated ? "; it must come from more than half of the clients that evaluate" : "");
}

}  // namespace

RunMachine::RunMachine(RunStart start, const CoordinatorOptions& options, ClientTable& clients,
                       Turn& turn)
    : start_(std::move(start)),
      run_{start_, options, clients, turn},
      candidates_(start_, clients, turn),
      abandoned_(std::exchange(start_.abandoned, {})) {
  work_ += clients.size();
  for (const auto& [name, client] : clients.all()) {
    if (client.session) {
      came(name);
    } else {
      went_away(name, client);
    }
  }
}

std::uint64_t RunMachine::work() const {
  return work_ + candidates_.work() + (phase_ ? phase_->tasks().work() : 0);
}

std::optional<TimePoint> RunMachine::next_deadline() const {
  if (phase_) return phase_->next_deadline();
  // One that has passed waits for its turn.
  if (evaluate_by_ && run_.turn.now < *evaluate_by_) return evaluate_by_;
  return retry_at_;
}

std::string RunMachine::waits_for() const {
  if (phase_) return "";
  if (yields_to_) {
    return fmt::format("its turn: run {} has waited longer for clients", yields_to_->value());
  }
  return candidates_.awaited() > 0 ? candidates_.describe_awaited() : "";
}

// --- clients ------------------------------------------------------------------------------------

void RunMachine::came(const std::string& name) {
  candidates_.came(name);
  start_.missed.came_back(name);
  start_.evaluation_failures.came_back(name);
  if (phase_) phase_->came(name);
}

void RunMachine::went_away(const std::string& name, const ClientTable::Client& client) {
  candidates_.went_away(name, client);
  if (phase_) phase_->went_away(name, client);
}

void RunMachine::revoked(const std::string& name) {
  candidates_.revoked(name);
  if (phase_) phase_->revoked(name);
}

// It says that it has finished what an earlier attempt asked it for, good for the next one. Only
// the update itself ends the row of those that it missed.
void RunMachine::offered_late(const std::string& client, TaskId task) {
  const auto asked = abandoned_.find(client);
  if (asked != abandoned_.end() && asked->second == task) start_.missed.came_back(client);
}

// --- opening ------------------------------------------------------------------------------------

bool RunMachine::is_last_round() const {
  return start_.at.version.round >= static_cast<Round>(start_.job.job.rounds);
}

bool RunMachine::evaluation_is_due() const {
  const auto every = static_cast<Round>(start_.job.evaluate.federated_every);
  const Round round = start_.at.version.round;
  if (every == 0 || round == 0 || start_.evaluated) return false;
  return round % every == 0 || is_last_round() || start_.stopping.reason();
}

void RunMachine::try_open(std::optional<RunId> yields_to) {
  yields_to_.reset();
  if (retry_at_ && run_.turn.now < *retry_at_) return;
  retry_at_.reset();
  if (start_.open) {
    // A restart resumes the phase that was open: the same cohort and tasks, a fresh deadline.
    return open(*std::exchange(start_.open, std::nullopt), true);
  }
  const bool ends = is_last_round() || start_.stopping.reason();
  if (evaluation_is_due() && !evaluate_by_) {
    evaluate_by_ = run_.turn.now + start_.job.round.deadline;
  }
  if (yields_to && (evaluation_is_due() || !ends)) {
    yields_to_ = yields_to;
    return;
  }
  if (evaluation_is_due()) open_evaluation();
  if (phase_ || evaluation_is_due()) return;
  if (is_last_round()) return finish(FinishRun::State::kCompleted, std::nullopt);
  if (const auto reason = start_.stopping.reason()) {
    run_.say("stopped early: " + *reason);
    return finish(FinishRun::State::kCompleted, std::nullopt);
  }
  try_open_training();
}

void RunMachine::try_open_training() {
  const Round next = start_.at.version.round + 1;
  const auto past = start_.attempts.find(next);
  const Attempt attempt = past == start_.attempts.end() ? 1 : past->second.last + 1;
  const SelectionKey key{id(), start_.job.job.seed, next, attempt, start_.at.version.run_key};
  OpenAttempt opening{.round = next, .attempt = attempt};
  if (const auto recorded = start_.replay.contributors.find(next);
      recorded != start_.replay.contributors.end()) {
    if (!candidates_.all_connected(recorded->second)) return;
    std::vector<std::string> lost = std::exchange(start_.replay.lost[next], {});
    std::erase_if(lost, [this](const auto& client) { return !start_.counted.contains(client); });
    forget_lost_states(run_, lost);
    const auto population = start_.replay.populations.find(next);
    opening.population = population != start_.replay.populations.end() ? population->second
                                                                       : candidates_.count_able();
    opening.participants = select_clients(recorded->second, recorded->second.size(), key);
    return open(std::move(opening), false);
  }
  const bool waits_already = candidates_.awaited() > 0;
  const auto names = candidates_.to_train();
  if (!names) {
    if (waits_already) return;
    run_.say(fmt::format("{} waiting for {}", run_.label(next), candidates_.describe_awaited()));
    return run_.turn.act(RunWaits{id()});
  }
  opening.population = candidates_.count_able();
  opening.participants =
      select_clients(*names, static_cast<std::size_t>(start_.job.round.asked()), key);
  open(std::move(opening), false);
}

// It waits for clients that are at work for other runs, and holds none meanwhile, so that runs that
// wait for each other's clients all get them. At its deadline it is by those that are free.
void RunMachine::open_evaluation() {
  const Round round = start_.at.version.round;
  const auto wanted = static_cast<std::size_t>(start_.job.evaluations_wanted());
  const auto rule_needs = static_cast<std::size_t>(start_.job.aggregation.updates_min());
  const bool waits_already = candidates_.awaited() > 0;
  const auto found =
      candidates_.to_evaluate(rule_needs, wanted, run_.turn.now < evaluate_by_.value());
  if (!found) {
    if (waits_already) return;
    run_.say(fmt::format("{} waiting for {}", run_.label(round), candidates_.describe_awaited()));
    return run_.turn.act(RunWaits{id()});
  }
  start_.evaluated = true;
  evaluate_by_.reset();
  candidates_.stop_waiting();
  const std::vector<std::string>& names = *found;
  if (std::min(names.size(), wanted) < rule_needs) {
    return run_.say(fmt::format("{} the model is not evaluated by clients: {}", run_.label(round),
                                candidates_.why_too_few_evaluate()));
  }
  const auto count =
      static_cast<std::size_t>(start_.job.round.asked(start_.job.evaluations_wanted()));
  const auto past = start_.evaluations.find(round);
  const Attempt attempt = past == start_.evaluations.end() ? 1 : past->second + 1;
  // Another stream of draws than that of trainings, whose attempts count from 1.
  const SelectionKey key{id(), start_.job.job.seed, round, kEvaluationAttempt - (attempt - 1),
                         start_.at.version.run_key};
  open({.kind = protocol::TaskKind::kEvaluate,
        .round = round,
        .attempt = attempt,
        .participants = select_clients(names, count, key),
        .population = candidates_.count_able()},
       false);
}

void RunMachine::open(OpenAttempt opening, bool resumed) {
  candidates_.stop_waiting();
  const RoundOptions& options = start_.job.round;
  const std::vector<Participant>& participants = opening.participants;
  const std::size_t asked = participants.size();
  const bool trains = opening.kind == protocol::TaskKind::kTrain;
  const auto wanted =
      static_cast<std::size_t>(trains ? options.cohort : start_.job.evaluations_wanted());
  const auto rule_needs = static_cast<std::size_t>(start_.job.aggregation.updates_min());
  if (trains && !std::exchange(said_who_cannot_, true)) {
    if (std::string text = candidates_.describe_unable(); !text.empty()) run_.say(std::move(text));
  }
  update::Schema schema =
      trains ? start_.schema : update::Schema{.scalars = {"loss"}, .bounds = start_.schema.bounds};
  schema.bounds.contributions_max = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(asked));
  bool is_repetition = false;  // earlier attempts of the round lacked room again and again
  if (const auto past = start_.attempts.find(opening.round); past != start_.attempts.end()) {
    const auto counted = static_cast<std::uint64_t>(past->second.failed);
    is_repetition = !is_logged(past->second.last - counted + 1);
  }
  phase_.emplace(
      run_,
      RoundMachine::Options{.run = id(),
                            .kind = opening.kind,
                            .round = opening.round,
                            .attempt = opening.attempt,
                            .updates_wanted = std::min(wanted, asked),
                            .updates_needed = trains ? start_.job.updates_needed(asked)
                                                     : std::max<std::size_t>(rule_needs, 1),
                            .deadline = options.deadline,
                            .resumed = resumed,
                            .bytes_in = opening.bytes_in,
                            .bytes_out = opening.bytes_out},
      participants, std::move(schema), is_repetition);
  // Who contributed to a recorded round was within its bound.
  const bool is_replayed = start_.replay.contributors.contains(opening.round);
  const auto norm_max = NormBound::parse(start_.job.aggregation.norm_max)
                            .value()
                            .limit(start_.norms, start_.norm_raises.count());
  run_.turn.act(BeginRound{.run = id(),
                           .kind = opening.kind,
                           .round = opening.round,
                           .attempt = opening.attempt,
                           .resumed = resumed,
                           .participants = participants,
                           .schema = phase_->schema(),
                           .base = start_.at,
                           .population = opening.population,
                           .norm_max = trains && !is_replayed ? norm_max : std::nullopt});
  const std::string attempt =
      opening.attempt > 1 ? fmt::format(" (attempt {})", opening.attempt) : "";
  if (resumed) {
    const auto connected = std::ranges::count_if(
        participants, [this](const Participant& p) { return run_.clients.connected(p.client); });
    run_.say(fmt::format("{} resumed: {} of its {} connected{}", run_.label(opening.round),
                         connected, counted(asked, "client"), attempt));
  } else if (!is_repetition) {
    run_.say(fmt::format("{} {} {} of {} clients{}", run_.label(opening.round),
                         trains ? "selected" : "evaluation by", asked, run_.clients.size(),
                         attempt));
  }
  for (const Participant& participant : participants) abandoned_.erase(participant.client);
  phase_->ask_all(participants);
}

// --- ending -------------------------------------------------------------------------------------

void RunMachine::advance() {
  if (!phase_ || phase_->closed()) return;
  phase_->advance();
  close_if_due();
}

void RunMachine::close_if_due() {
  const RoundMachine::Verdict verdict = phase_->tasks().verdict(run_.turn.now);
  if (verdict == RoundMachine::Verdict::kOpen) return;
  RoundSummary summary = phase_->close();
  if (phase_->trains()) {
    note_misses(run_, summary);
    blame_for_norms(run_, summary, verdict == RoundMachine::Verdict::kCommit);
  }
  if (verdict == RoundMachine::Verdict::kAbandon) return abandon(std::move(summary));
  closing_ = summary;
  run_.turn.act(CommitRound{std::move(summary)});
}

void RunMachine::stop() {
  if (phase_ && phase_->closed()) {
    stop_requested_ = true;
    return run_.turn.act(StopEvaluation{id()});
  }
  finish(FinishRun::State::kStopped, std::nullopt);
}

void RunMachine::abandon(RoundSummary summary) {
  const AggregationOptions& aggregation = start_.job.aggregation;
  const std::size_t came = summary.contributors.size();
  const bool evaluated = !phase_->trains();
  const bool by_rule =
      aggregation.updates_min() > 1 && came < static_cast<std::size_t>(aggregation.updates_min());
  const Error reason = retry(
      "too-few-updates",
      fmt::format("{} of the {} {} that were needed{}{}", came,
                  phase_->tasks().options().updates_needed, evaluated ? "evaluations" : "updates",
                  by_rule ? fmt::format(" (aggregation.trim = {} needs {})", aggregation.trim,
                                        aggregation.updates_min())
                          : "",
                  describe_codes(came + summary.failures.size(), summary.failures)));
  if (evaluated) return end_with(std::move(summary), reason);
  abandon_training(std::move(summary), reason);
}

// After the line of its failures, which is said when it is stored.
void RunMachine::say_abandoned(const Error& reason) {
  const bool evaluated = !phase_->trains();
  run_.say(fmt::format("{} {}abandoned: {}", run_.label(phase_->tasks().options().round),
                       evaluated ? "evaluation " : "", reason.message()));
}

// For good: its clients are told.
void RunMachine::end_with(RoundSummary summary, const Error& reason) {
  summary.committed = false;
  if (!phase_->trains()) note_misses(run_, summary);
  run_.turn.act(AbandonRound{std::move(summary), reason});
  if (!phase_->is_repetition()) say_abandoned(reason);
  phase_->end_all_tasks(reason);
  remove_phase();
}

// Without telling its clients: what they finished or still train is good for the next attempt. They
// are told when the round or the run is over.
void RunMachine::abandon_training(RoundSummary summary, const Error& reason) {
  const RoundOptions& options = start_.job.round;
  const bool lacks_memory = lacked_memory(summary.failures, summary.contributors.size(),
                                          phase_->tasks().options().updates_needed);
  const bool is_excused = lacks_memory || lacked_room(summary.failures);
  const bool is_repetition = phase_->is_repetition() && is_excused;
  PastAttempts& past = start_.attempts[summary.round];
  past.last = summary.attempt;
  const std::vector<std::string> lost = who_lost(summary.failures, start_.counted);
  if (lost.empty() && !is_excused) ++past.failed;
  for (const auto& [id, task] : phase_->tasks().tasks()) abandoned_[task.client] = id;
  run_.turn.act(AbandonRound{std::move(summary), reason, is_repetition});
  if (!is_repetition) say_abandoned(reason);
  remove_phase();
  forget_lost_states(run_, lost);
  if (past.failed < options.attempts_max) {
    Duration pause = options.retry_pause;
    if (lacks_memory) pause = std::max(pause, memory_pause(past));
    retry_at_ = run_.turn.now + pause;
    return;
  }
  finish(FinishRun::State::kFailed,
         retry(reason.code(),
               fmt::format("round {} was abandoned {} times, the last time with {}",
                           start_.at.version.round + 1, past.failed, reason.message())));
}

void RunMachine::end_abandoned_tasks(const Error& reason) {
  for (const auto& [client, id] : std::exchange(abandoned_, {})) {
    run_.clients.send_to(client, protocol::TaskEnded{id, reason.code(), reason.message()});
  }
}

void RunMachine::handle(RoundDurable& event) {
  STARLING_CHECK(phase_ && phase_->closed());
  const RoundSummary summary = std::exchange(closing_, {});
  const bool trained = phase_->trains();
  if (event.result) {
    committed(summary, std::move(*event.result));
  } else {
    end_with(summary, event.result.error());
    if (trained) return finish(FinishRun::State::kFailed, event.result.error());
  }
  if (stop_requested_) finish(FinishRun::State::kStopped, std::nullopt);
}

void RunMachine::committed(const RoundSummary& summary, Durable durable) {
  if (!phase_->trains()) note_misses(run_, summary);
  if (durable.measured) measured(summary.round, *durable.measured);
  if (durable.next) {
    start_.at = std::move(*durable.next);
    start_.evaluated = false;
    start_.attempts.erase(start_.attempts.begin(),
                          start_.attempts.upper_bound(start_.at.version.round));
    std::vector<double> norms;
    for (const Contributor& contributor : summary.contributors) {
      norms.push_back(contributor.norm);
      start_.counted.counted(contributor.client, {contributor.task, summary.round});
    }
    add_norms(std::move(norms), start_.norms, start_.first_norms);
    forget_lost_states(run_, who_lost(summary.failures, start_.counted));
    end_abandoned_tasks(retry("round-closed", "the round closed without this update"));
  }
  for (const Contributor& contributor : summary.contributors) {
    run_.clients.send_to(contributor.client,
                         protocol::RoundCommitted{.task = contributor.task,
                                                  .run = summary.run,
                                                  .round = summary.round,
                                                  .model_sha256 = start_.at.version.sha256});
  }
  phase_->tell_failed_tasks();
  remove_phase();
}

void RunMachine::measured(Round round, const Measured& found) {
  const EarlyStopping& stopping = start_.stopping;
  start_.stopping.record(round, found);
  if (!stopping.is_of(found)) return;
  const bool misses = !stopping.value_of(found);
  if (!std::exchange(misses_metric_, misses) && misses) {
    run_.say(describe_missing(start_.job.stop, round, found));
  }
}

void RunMachine::remove_phase() {
  phase_->release_all();
  work_ += phase_->tasks().work();
  phase_.reset();
}

void RunMachine::finish(FinishRun::State state, std::optional<Error> error) {
  const Error stopped = rejected("run-stopped", "the run was stopped");
  end_abandoned_tasks(error.value_or(stopped));
  if (phase_) {
    run_.turn.act(AbandonRound{phase_->close(stopped), stopped});
    phase_->end_all_tasks(stopped);
    remove_phase();
  }
  if (state == FinishRun::State::kCompleted && start_.stopping.unmeasured()) {
    run_.say(fmt::format("stop.metric = '{}' was never measured, so it could not end the run",
                         start_.job.stop.metric));
  }
  run_.turn.act(FinishRun{id(), state, std::move(error)});
  over_ = true;
}

}  // namespace starling::coordinator
