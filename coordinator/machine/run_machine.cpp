// SPDX-License-Identifier: Apache-2.0
// How a run opens and ends its phases; what happens within one stands in run_machine_phase.cpp.
#include "coordinator/machine/run_machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/machine/client_fit.h"
#include "coordinator/machine/repetition.h"
#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/list_some.h"

namespace starling::coordinator {
namespace {

constexpr std::size_t kNamed = 5;  // clients in a line

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

std::string when_again(const ClientPauses& pauses, const ClientPauses::Row& row) {
  return fmt::format("it is asked again from round {} on{}", row.next_chance,
                     pauses.may_come_back(row) ? ", or once it has connected again" : "");
}

}  // namespace

RunMachine::RunMachine(RunStart start, const CoordinatorOptions& options, ClientTable& clients,
                       Turn& turn)
    : start_(std::move(start)),
      options_(options),
      clients_(clients),
      turn_(turn),
      abandoned_(std::exchange(start_.abandoned, {})) {
  work_ += clients_.size();
  for (const auto& [name, client] : clients_.all()) {
    if (client.session) {
      came(name, client);
    } else if (client.seen) {
      away_.set(name, client.away_since + start_.job.round.reconnect_grace);
    }
  }
}

std::uint64_t RunMachine::work() const { return work_ + (phase_ ? phase_->tasks.work() : 0); }

std::optional<TimePoint> RunMachine::next_deadline() const {
  if (!phase_) return retry_at_;
  if (phase_->committing) return std::nullopt;
  std::optional<TimePoint> next;
  const auto consider = [&next](std::optional<TimePoint> time) {
    if (time) next = next ? std::min(*next, *time) : time;
  };
  if (!phase_->tasks.summing()) consider(phase_->tasks.deadline());
  consider(phase_->retries.next());
  consider(phase_->absent.next());
  return next;
}

// --- who can be asked ---------------------------------------------------------------------------

std::string RunMachine::inability(const ClientTable::Client& client,
                                  protocol::TaskKind kind) const {
  return why_unfit(client, start_.abilities, start_.job.training.data, kind);
}

// Connected, or away for less than the grace, able and not at work.
bool RunMachine::may_be_asked(const std::string& name, const ClientTable::Client& client,
                              protocol::TaskKind kind) const {
  if (!client.seen || !client.tasks.empty() || start_.failures.left_out(name)) return false;
  const bool evaluates = kind == protocol::TaskKind::kEvaluate;
  const Round round = start_.at.version.round;
  if (evaluates && start_.evaluation_failures.left_out(name, round)) return false;
  const Duration grace = start_.job.round.reconnect_grace;
  if (!client.session && turn_.now >= client.away_since + grace) return false;
  return inability(client, kind).empty();
}

// Empty where it is not, by what is known of it.
std::string RunMachine::why_left_out(const std::string& name,
                                     const ClientTable::Client& client) const {
  if (const std::string* reason = start_.failures.why_left_out(name)) {
    return "its tasks of this run failed: " + *reason;
  }
  return inability(client, protocol::TaskKind::kTrain);
}

RunMachine::Reach RunMachine::reach() const {
  work_ += clients_.size();
  Reach reach{.admitted = clients_.size(), .connected = clients_.count_connected()};
  const Round next = start_.at.version.round + 1;
  const ClientPauses& missed = start_.missed;
  const ClientPauses& evaluations = start_.evaluation_failures;
  for (const auto& [name, client] : clients_.all()) {
    std::string why = why_left_out(name, client);
    if (!why.empty()) {
      reach.left_out.push_back({name, std::move(why)});
      continue;
    }
    if (const auto* row = missed.find_left_out(name, next)) {
      reach.left_out.push_back(
          {name,
           fmt::format("{} trainings in a row ended without its update ({}); {}, or where a round "
                       "has too few other clients",
                       row->in_a_row, row->reason, when_again(missed, *row)),
           true});
    } else if (const auto* failed = evaluations.find_left_out(name, next)) {
      reach.left_out.push_back(
          {name,
           fmt::format("it may train and is not asked to evaluate; {} evaluations that were waited "
                       "for failed, without one that counted between: {}; {}",
                       failed->in_a_row, failed->reason, when_again(evaluations, *failed)),
           true});
    }
    ++reach.able;
    if (client.session) ++reach.connected_able;
  }
  return reach;
}

bool RunMachine::held_up_by_others() const {
  if (awaited_ == 0 || clients_.count_connected() < awaited_) return false;
  if (clients_.count_connected_at_work() == 0) return false;
  if (held_up_.first != clients_.presence_version()) {
    held_up_ = {clients_.presence_version(), reach().connected_able >= awaited_};
  }
  return held_up_.second;
}

std::string RunMachine::waits_for() const {
  if (phase_) return "";
  if (yields_to_) {
    return fmt::format("its turn: run {} has waited longer for clients", yields_to_->value());
  }
  if (awaited_ == 0) return "";
  const Reach reach = this->reach();
  const std::size_t busy = clients_.count_connected_at_work();
  std::string there = describe_connected(reach.connected, reach.connected_able);
  if (busy > 0) there += fmt::format(", {} at work for other runs", busy);
  return fmt::format("{} ({})", counted(awaited_, "client"), there);
}

// Asked at every event while some are missing: the one that was missing before is looked at first.
bool RunMachine::all_connected(const std::vector<std::string>& names) {
  const auto there = [this](const std::string& name) {
    const ClientTable::Client* client = clients_.find(name);
    return client != nullptr && client->session && client->tasks.empty();
  };
  if (!missing_.empty() && !there(missing_)) return false;
  work_ += names.size();
  const auto missing = std::ranges::find_if_not(names, there);
  missing_ = missing == names.end() ? "" : *missing;
  return missing == names.end();
}

void RunMachine::say_who_cannot() {
  if (std::exchange(said_who_cannot_, true)) return;
  std::size_t count = 0;
  std::string text;
  for (const auto& [name, client] : clients_.all()) {
    const std::string why = inability(client, protocol::TaskKind::kTrain);
    if (why.empty() || ++count > kNamed) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", name, why);
  }
  if (count == 0) return;
  if (count > kNamed) text += fmt::format("; and {} more", count - kNamed);
  turn_.say(id(), fmt::format("{} of {} cannot take part in this run ({})", count,
                              counted(clients_.size(), "client"), text));
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
  if (retry_at_ && turn_.now < *retry_at_) return;
  retry_at_.reset();
  if (start_.open) {
    // A restart resumes the phase that was open: the same cohort and tasks, a fresh deadline.
    return open(*std::exchange(start_.open, std::nullopt), true);
  }
  const bool ends = is_last_round() || start_.stopping.reason();
  if (yields_to && (evaluation_is_due() || !ends)) {
    yields_to_ = yields_to;
    return;
  }
  if (evaluation_is_due()) open_evaluation();
  if (phase_) return;
  if (is_last_round()) return finish(FinishRun::State::kCompleted, std::nullopt);
  if (const auto reason = start_.stopping.reason()) {
    turn_.say(id(), "stopped early: " + *reason);
    return finish(FinishRun::State::kCompleted, std::nullopt);
  }
  try_open_training();
}

void RunMachine::try_open_training() {
  const Job& job = start_.job;
  const Round next = start_.at.version.round + 1;
  const auto past = start_.attempts.find(next);
  const Attempt attempt = past == start_.attempts.end() ? 1 : past->second.last + 1;
  const SelectionKey key{id(), start_.job.job.seed, next, attempt, start_.at.version.run_key};
  OpenAttempt opening{.round = next, .attempt = attempt};
  if (const auto recorded = start_.replay.contributors.find(next);
      recorded != start_.replay.contributors.end()) {
    if (!all_connected(recorded->second)) return;
    std::vector<std::string> lost = std::exchange(start_.replay.lost[next], {});
    std::erase_if(lost, [this](const auto& client) { return !start_.counted.contains(client); });
    forget_lost_states(lost);
    const auto population = start_.replay.populations.find(next);
    opening.population =
        population != start_.replay.populations.end() ? population->second : count_able();
    opening.participants = select_clients(recorded->second, recorded->second.size(), key);
    return open(std::move(opening), false);
  }
  const auto awaited =
      static_cast<std::size_t>(next == 1 ? job.clients_awaited() : job.updates_needed());
  away_.take_due(turn_.now);
  const std::size_t may_come = next == 1 ? 0 : away_.size();
  if (clients_.count_connected() - clients_.count_connected_at_work() + may_come < awaited) {
    return wait_for_clients(awaited);
  }
  // Nothing has changed since too few were found: neither has the answer.
  if (awaited_ > 0 && looked_at_version_ == clients_.version()) return;
  std::vector<std::string> names = who_may_be_asked(protocol::TaskKind::kTrain);
  const auto connected = [&] {
    return static_cast<std::size_t>(std::ranges::count_if(
        names, [this](const std::string& name) { return clients_.connected(name); }));
  };
  if ((next == 1 ? connected() : names.size()) < awaited) {
    looked_at_version_ = clients_.version();
    return wait_for_clients(awaited);
  }
  prefer_those_in_time(names, next, static_cast<std::size_t>(job.updates_needed()));
  opening.population = count_able();
  opening.participants = select_clients(names, static_cast<std::size_t>(job.round.asked()), key);
  open(std::move(opening), false);
}

// Clients that let one training after another pass are asked where a round, or an evaluation,
// cannot do without them: where all are slow, the updates of a later attempt may still be in time.
void RunMachine::prefer_those_in_time(std::vector<std::string>& names, Round round,
                                      std::size_t needed) const {
  std::vector<std::string> in_time;
  std::ranges::copy_if(names, std::back_inserter(in_time), [&](const std::string& name) {
    return !start_.missed.left_out(name, round);
  });
  if (in_time.size() >= needed) names = std::move(in_time);
}

std::uint64_t RunMachine::count_able() const {
  work_ += clients_.size();
  return static_cast<std::uint64_t>(
      std::ranges::count_if(clients_.all(), [this](const auto& entry) {
        return inability(entry.second, protocol::TaskKind::kTrain).empty();
      }));
}

std::vector<std::string> RunMachine::who_may_be_asked(protocol::TaskKind kind) {
  work_ += clients_.size();
  std::vector<std::string> names;
  for (const auto& [name, client] : clients_.all()) {
    if (may_be_asked(name, client, kind)) names.push_back(name);
  }
  return names;
}

// Of the admitted clients, by what is known of them.
std::string RunMachine::why_too_few_evaluate() const {
  work_ += clients_.size();
  const Round round = start_.at.version.round;
  std::size_t holders = 0, unable = 0, busy = 0, away = 0;
  for (const auto& [name, client] : clients_.all()) {
    if (!holds_rows_out(client.greeting)) continue;
    ++holders;
    if (!inability(client, protocol::TaskKind::kEvaluate).empty() ||
        start_.failures.left_out(name) || start_.evaluation_failures.left_out(name, round)) {
      ++unable;
    } else if (!client.tasks.empty()) {
      ++busy;
    } else if (!client.session) {
      ++away;
    }
  }
  if (holders == 0) {
    return fmt::format("none of the {} holds rows out (data.hold-out in edge.toml)",
                       counted(clients_.size(), "client"));
  }
  std::string text = fmt::format(
      "{} rows out: {} at work for other runs, {} not connected, {} cannot do this run "
      "or left out",
      holders == 1 ? "1 client holds" : fmt::format("{} clients hold", holders), busy, away,
      unable);
  const AggregationOptions& aggregation = start_.job.aggregation;
  if (aggregation.updates_min() > 1) {
    text += fmt::format("; aggregation.trim = {} needs {}", aggregation.trim,
                        aggregation.updates_min());
  }
  if (start_.job.evaluations_wanted() < aggregation.updates_min()) {
    text +=
        fmt::format(", and evaluate.federated-cohort is {}", start_.job.evaluate.federated_cohort);
  }
  return text;
}

// By the clients that are free now: it does not wait for those that are at work for other runs.
void RunMachine::open_evaluation() {
  start_.evaluated = true;
  std::vector<std::string> names = who_may_be_asked(protocol::TaskKind::kEvaluate);
  const Round round = start_.at.version.round;
  const auto wanted = static_cast<std::size_t>(start_.job.evaluations_wanted());
  const auto rule_needs = static_cast<std::size_t>(start_.job.aggregation.updates_min());
  if (std::min(names.size(), wanted) < rule_needs) {
    return turn_.say(id(), fmt::format("[round {}/{}] the model is not evaluated by clients: {}",
                                       round, start_.job.job.rounds, why_too_few_evaluate()));
  }
  prefer_those_in_time(names, round, rule_needs);
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
        .population = count_able()},
       false);
}

void RunMachine::wait_for_clients(std::size_t awaited) {
  if (std::exchange(awaited_, awaited) > 0) return;
  held_up_ = {};
  turn_.say(id(), fmt::format("[round {}/{}] waiting for {}", start_.at.version.round + 1,
                              start_.job.job.rounds, waits_for()));
  turn_.act(RunWaits{id()});
}

void RunMachine::open(OpenAttempt opening, bool resumed) {
  awaited_ = 0;
  const RoundOptions& options = start_.job.round;
  const std::vector<Participant>& participants = opening.participants;
  const std::size_t asked = participants.size();
  const bool trains = opening.kind == protocol::TaskKind::kTrain;
  const auto wanted =
      static_cast<std::size_t>(trains ? options.cohort : start_.job.evaluations_wanted());
  const auto needed = trains ? static_cast<std::size_t>(options.updates_needed()) : 1;
  const auto rule_needs = static_cast<std::size_t>(start_.job.aggregation.updates_min());
  if (trains) say_who_cannot();
  phase_.emplace(RoundMachine({.run = id(),
                               .kind = opening.kind,
                               .round = opening.round,
                               .attempt = opening.attempt,
                               .updates_wanted = std::min(wanted, asked),
                               .updates_needed = std::max(std::min(needed, asked), rule_needs),
                               .deadline = options.deadline,
                               .resumed = resumed,
                               .bytes_in = opening.bytes_in,
                               .bytes_out = opening.bytes_out},
                              participants, turn_.now));
  if (const auto past = start_.attempts.find(opening.round); past != start_.attempts.end()) {
    const auto counted = static_cast<std::uint64_t>(past->second.failed);
    phase_->is_repetition = !is_logged(past->second.last - counted + 1);
  }
  phase_->schema =
      trains ? start_.schema
             : update::Schema{.scalars = {"accuracy", "loss"}, .bounds = start_.schema.bounds};
  phase_->schema.bounds.contributions_max =
      std::max<std::uint32_t>(1, static_cast<std::uint32_t>(asked));
  phase_->traffic_recorded = opening.bytes_out;
  phase_->median_rows = median_rows(participants);
  // Who contributed to a recorded round was within its bound.
  const bool is_replayed = start_.replay.contributors.contains(opening.round);
  const auto norm_max = NormBound::parse(start_.job.aggregation.norm_max)
                            .value()
                            .limit(start_.norms, start_.norm_raises.count());
  turn_.act(BeginRound{.run = id(),
                       .kind = opening.kind,
                       .round = opening.round,
                       .attempt = opening.attempt,
                       .resumed = resumed,
                       .participants = participants,
                       .schema = phase_->schema,
                       .base = start_.at,
                       .population = opening.population,
                       .norm_max = trains && !is_replayed ? norm_max : std::nullopt});
  const std::string attempt =
      opening.attempt > 1 ? fmt::format(" (attempt {})", opening.attempt) : "";
  if (resumed) {
    const auto connected = std::ranges::count_if(
        participants, [this](const Participant& p) { return clients_.connected(p.client); });
    turn_.say(id(),
              fmt::format("{} resumed: {} of its {} connected{}", label(phase_->tasks.options()),
                          connected, counted(asked, "client"), attempt));
  } else if (!phase_->is_repetition) {
    turn_.say(id(),
              fmt::format("{} {} {} of {} clients{}", label(phase_->tasks.options()),
                          trains ? "selected" : "evaluation by", asked, clients_.size(), attempt));
  }
  for (const Participant& participant : participants) {
    abandoned_.erase(participant.client);
    if (clients_.find(participant.client)) clients_.assign(participant.client, participant.task);
    ask_or_await(participant.client, participant.task);
  }
}

std::string RunMachine::label(const RoundMachine::Options& phase) const {
  return fmt::format("[round {}/{}]", phase.round, start_.job.job.rounds);
}

// --- ending -------------------------------------------------------------------------------------

void RunMachine::stop() {
  if (phase_ && phase_->committing) {
    stop_requested_ = true;
    return;
  }
  finish(FinishRun::State::kStopped, std::nullopt);
}

void RunMachine::abandon(RoundSummary summary) {
  const AggregationOptions& aggregation = start_.job.aggregation;
  const std::size_t came = summary.contributors.size();
  const bool evaluated = phase_->kind() == protocol::TaskKind::kEvaluate;
  const bool by_rule =
      aggregation.updates_min() > 1 && came < static_cast<std::size_t>(aggregation.updates_min());
  const Error reason = retry(
      "too-few-updates",
      fmt::format("{} of the {} {} that were needed{}{}", came,
                  phase_->tasks.options().updates_needed, evaluated ? "evaluations" : "updates",
                  by_rule ? fmt::format(" (aggregation.trim = {} needs {})", aggregation.trim,
                                        aggregation.updates_min())
                          : "",
                  describe_codes(came + summary.failures.size(), summary.failures)));
  phase_->is_repetition = phase_->is_repetition && lacked_room(summary.failures);
  if (evaluated) return end_with(std::move(summary), reason);
  abandon_training(std::move(summary), reason);
}

// After the line of its failures, which is said when it is stored.
void RunMachine::say_abandoned(const Error& reason) {
  if (phase_->is_repetition) return;
  const bool evaluated = phase_->kind() == protocol::TaskKind::kEvaluate;
  turn_.say(id(), fmt::format("{} {}abandoned: {}", label(phase_->tasks.options()),
                              evaluated ? "evaluation " : "", reason.message()));
}

// For good: its clients are told.
void RunMachine::end_with(RoundSummary summary, const Error& reason) {
  summary.committed = false;
  note_evaluation(summary);
  turn_.act(AbandonRound{std::move(summary), reason});
  say_abandoned(reason);
  end_all_tasks(reason);
  close_phase();
}

// Without telling its clients: what they finished or still train is good for the next attempt. They
// are told when the round or the run is over.
void RunMachine::abandon_training(RoundSummary summary, const Error& reason) {
  const RoundOptions& options = start_.job.round;
  PastAttempts& past = start_.attempts[summary.round];
  past.last = summary.attempt;
  const std::vector<std::string> lost = who_lost(summary.failures, start_.counted);
  if (lost.empty() && !lacked_room(summary.failures)) ++past.failed;
  for (const auto& [id, task] : phase_->tasks.tasks()) abandoned_[task.client] = id;
  turn_.act(AbandonRound{std::move(summary), reason, phase_->is_repetition});
  say_abandoned(reason);
  close_phase();
  forget_lost_states(lost);
  if (past.failed < options.attempts_max) {
    retry_at_ = turn_.now + options.retry_pause;
    return;
  }
  finish(FinishRun::State::kFailed,
         retry(reason.code(),
               fmt::format("round {} was abandoned {} times, the last time with {}",
                           start_.at.version.round + 1, past.failed, reason.message())));
}

void RunMachine::forget_lost_states(const std::vector<std::string>& lost) {
  const Forgotten forgotten = forget_lost(start_, lost);
  if (forgotten.all) {
    start_.at = first_position(*start_.strategy, start_.at.version, start_.at.model);
    turn_.say(
        id(),
        fmt::format("what '{}' remembers begins again, here and on all clients: {} lost "
                    "its part of it",
                    start_.job.training.strategy.name, list_some(lost, kNamed, std::identity())));
  }
  for (const std::string& client : forgotten.left_out) {
    turn_.say(id(), fmt::format("{} is left out of this run from now on: {}", client,
                                *start_.failures.why_left_out(client)));
  }
}

void RunMachine::end_abandoned_tasks(const Error& reason) {
  for (const auto& [client, id] : std::exchange(abandoned_, {})) {
    clients_.send_to(client, protocol::TaskEnded{id, reason.code(), reason.message()});
  }
}

void RunMachine::handle(RoundDurable& event) {
  STARLING_CHECK(phase_ && phase_->committing);
  phase_->committing = false;
  const RoundSummary summary = std::exchange(phase_->closing, {});
  const bool trained = phase_->kind() == protocol::TaskKind::kTrain;
  if (event.result) {
    committed(summary, std::move(*event.result));
  } else {
    end_with(summary, event.result.error());
    if (trained) return finish(FinishRun::State::kFailed, event.result.error());
  }
  if (stop_requested_) finish(FinishRun::State::kStopped, std::nullopt);
}

void RunMachine::committed(const RoundSummary& summary, Durable durable) {
  note_evaluation(summary);
  if (durable.measured) start_.stopping.record(summary.round, *durable.measured);
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
    forget_lost_states(who_lost(summary.failures, start_.counted));
    end_abandoned_tasks(retry("round-closed", "the round closed without this update"));
  }
  for (const Contributor& contributor : summary.contributors) {
    clients_.send_to(contributor.client,
                     protocol::RoundCommitted{.task = contributor.task,
                                              .run = summary.run,
                                              .round = summary.round,
                                              .model_sha256 = start_.at.version.sha256});
  }
  for (const auto& [id, task] : phase_->tasks.tasks()) {
    if (task.state == RoundMachine::State::kFailed) tell_task_end(id);
  }
  close_phase();
}

void RunMachine::close_phase() {
  for (const auto& [task, state] : phase_->tasks.tasks()) clients_.release(state.client, task);
  work_ += phase_->tasks.work();
  phase_.reset();
}

void RunMachine::finish(FinishRun::State state, std::optional<Error> error) {
  const Error stopped = rejected("run-stopped", "the run was stopped");
  end_abandoned_tasks(error.value_or(stopped));
  if (phase_) {
    for (const auto& [task, upload] : phase_->uploads) turn_.act(DropUpload{task});
    turn_.act(AbandonRound{phase_->tasks.close(turn_.now, stopped), stopped});
    end_all_tasks(stopped);
    close_phase();
  }
  if (state == FinishRun::State::kCompleted && start_.stopping.unmeasured()) {
    turn_.say(id(),
              fmt::format("stop.metric = '{}' was never measured, so it could not end the run",
                          start_.job.stop.metric));
  }
  turn_.act(FinishRun{id(), state, std::move(error)});
  over_ = true;
}

}  // namespace starling::coordinator
