// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/run_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <ranges>

#include "core/base/counted.h"
#include "core/base/decimal.h"
#include "core/base/list_some.h"

namespace starling::coordinator {
namespace {

// Rounds that an earlier version committed have none.
std::vector<double> norms_of(const store::RoundRecord& record) {
  std::vector<double> norms;
  for (const store::Contribution& c : record.result.contributions) {
    if (c.norm) norms.push_back(*c.norm);
  }
  return norms;
}

// Clients that failed for the same reason stand before it together.
std::string describe_failures(const std::vector<RoundFailure>& failures) {
  constexpr std::size_t kNamed = 5;
  struct Group {
    RoundFailure failure;  // with the bytes of all
    std::vector<std::string> clients;
  };
  std::vector<Group> groups;
  for (const RoundFailure& f : failures) {
    const auto same = std::ranges::find_if(groups, [&f](const Group& group) {
      return group.failure.code == f.code && group.failure.reason == f.reason;
    });
    if (same == groups.end()) {
      groups.push_back({f, {f.client}});
    } else {
      same->failure.bytes_in += f.bytes_in;
      same->clients.push_back(f.client);
    }
  }
  std::string text;
  std::size_t left = failures.size();
  for (const auto& [failure, clients] : groups | std::views::take(kNamed)) {
    text += fmt::format("{}{}: {}, {}", text.empty() ? "" : "; ",
                        list_some(clients, kNamed, std::identity()), failure.code, failure.reason);
    if (failure.bytes_in > 0) {
      text += fmt::format(", {} received", format_byte_count(failure.bytes_in));
    }
    left -= clients.size();
  }
  if (left > 0) text += fmt::format("; and {} more", left);
  return text;
}

// "mae 0.3100  "; `before` stands before each name.
std::string describe(const train::Metrics& metrics, std::string_view before) {
  constexpr std::size_t kMetricsNamed = 5;
  std::string text;
  for (const auto& [name, value] : metrics | std::views::take(kMetricsNamed)) {
    text += fmt::format("{}{} {}  ", before, name, decimal(value));
  }
  if (metrics.size() > kMetricsNamed) {
    const std::uint64_t more = metrics.size() - kMetricsNamed;
    text += fmt::format("and {} more  ", counted(more, fmt::format("{}metric", before)));
  }
  return text;
}

// "held-out loss 0.4385  accuracy 0.8421  mae 0.3100  "
std::string describe(const Measured& found) {
  std::string text =
      fmt::format("{} loss {}  ", found.federated ? "held-out" : "eval", decimal(found.loss));
  if (found.accuracy) text += fmt::format("accuracy {}  ", decimal(*found.accuracy));
  return text + describe(found.metrics, "");
}

protocol::TaskKind to_kind(store::PhaseKind kind) {
  return kind == store::PhaseKind::kTrain ? protocol::TaskKind::kTrain
                                          : protocol::TaskKind::kEvaluate;
}

}  // namespace

store::PhaseKind to_record(protocol::TaskKind kind) {
  return kind == protocol::TaskKind::kTrain ? store::PhaseKind::kTrain
                                            : store::PhaseKind::kEvaluate;
}

store::AttemptKey key_of(const RoundSummary& summary) {
  return {summary.run, summary.round, summary.attempt, to_record(summary.kind)};
}

store::NewAttempt to_record(const BeginRound& begin, WallTime now) {
  store::NewAttempt attempt{.key = {begin.run, begin.round, begin.attempt, to_record(begin.kind)},
                            .base_model = begin.base.version.sha256,
                            .started = now,
                            .population = begin.population};
  for (const Participant& p : begin.participants) attempt.cohort.push_back({p.client, p.task});
  return attempt;
}

store::AttemptResult to_record(const RoundSummary& summary, const RoundOutcome* outcome) {
  store::AttemptResult result{.seconds = to_seconds(summary.elapsed),
                              .bytes_in = summary.bytes_in,
                              .bytes_out = summary.bytes_out};
  const bool trained = summary.kind == protocol::TaskKind::kTrain;
  for (const Contributor& c : summary.contributors) {
    result.contributions.push_back(
        {c.client, c.task, c.weight, trained ? std::optional(c.norm) : std::nullopt});
  }
  for (const RoundFailure& f : summary.failures) {
    result.failures.push_back({f.client, f.code, f.reason, f.bytes_in, f.bytes_out});
  }
  if (!outcome) return result;
  result.train_loss = outcome->train_loss;
  result.train_metrics = outcome->train_metrics;
  if (const auto& found = outcome->measured) {
    result.evaluation = {found->loss, found->accuracy, found->metrics};
  }
  return result;
}

bool is_withdrawn(const store::RoundRecord& record) {
  return record.abandonment && store::is_withdrawal(*record.abandonment);
}

OpenAttempt to_open_attempt(const store::RoundRecord& record) {
  OpenAttempt open{.kind = to_kind(record.key.kind),
                   .round = record.key.round,
                   .attempt = record.key.attempt,
                   .participants = {},
                   .population = record.population,
                   .bytes_in = record.result.bytes_in,
                   .bytes_out = record.result.bytes_out};
  for (const store::CohortMember& member : record.cohort) {
    open.participants.push_back({member.client, member.task});
  }
  return open;
}

std::optional<store::Metric> metric_of(const StopOptions& stop) {
  if (!stop.enabled()) return std::nullopt;
  return store::Metric{stop.name(), stop.is_federated(), stop.more_is_better()};
}

std::string word_of(const store::Metric& metric) {
  return std::string(metric.federated ? kFederatedPrefix : "") + metric.name;
}

EarlyStopping replay_stopping(const StopOptions& stop,
                              const std::vector<store::RoundRecord>& rounds,
                              const std::vector<store::RoundRecord>& evaluations) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  EarlyStopping stopping(stop);
  for (const auto* records : {&rounds, &evaluations}) {
    for (const store::RoundRecord& record : *records) {
      const bool federated = record.key.kind == store::PhaseKind::kEvaluate;
      const store::Evaluation& found = record.result.evaluation;
      if (record.state != store::RoundState::kCommitted) continue;
      if (!federated && !found.loss && !found.accuracy) continue;
      stopping.record(record.key.round,
                      {federated, found.loss.value_or(kNone), found.accuracy, found.metrics});
    }
  }
  return stopping;
}

namespace {

// Of a training, only what a client is to blame for; why it was not waited for any longer says
// nothing, nor that it lost what it had.
void add_failures(const store::RoundRecord& record, bool blames_for_norms,
                  const CountedUpdates& updates, ClientFailures& failures) {
  const protocol::TaskKind kind = protocol::TaskKind::kTrain;
  for (const store::Contribution& c : record.result.contributions) failures.succeeded(c.client);
  for (const store::Failure& failure : record.result.failures) {
    const bool by_norm = failure.code == kNormAboveBound;
    if (is_circumstance(failure.code, kind) || (by_norm && !blames_for_norms)) continue;
    if (failure.code == client::kStateLost && updates.contains(failure.client)) continue;
    failures.failed(failure.client, failure.reason, failure.code.starts_with(kPermanent));
  }
}

}  // namespace

RunStart to_run_start(RunId id, const RunContext& context, RunPosition at,
                      const std::vector<store::RoundRecord>& rounds,
                      const std::optional<store::RoundRecord>& open,
                      const std::vector<store::RoundRecord>& evaluations) {
  RunStart start{
      .id = id,
      .job = context.job,
      .settings = context.settings(),
      .schema = context.schema(),
      .strategy = context.strategy,
      .uniform_weights = context.uniform_weights(),
      .abilities = context.abilities(),
      .at = std::move(at),
      .norm_raises = NormRaises(NormBound::parse(context.job.aggregation.norm_max).value()),
      .stopping = replay_stopping(context.job.stop, rounds, evaluations)};
  const Round round = start.at.version.round;
  bool forgotten = false;  // what the strategy remembered at the round where the run stands
  for (const store::RoundRecord& record : rounds) {
    const bool blames_for_norms =
        start.norm_raises.attempt_ended(record.result.contributions, record.result.failures,
                                        record.state == store::RoundState::kCommitted, start.norms);
    add_failures(record, blames_for_norms, start.counted, start.failures);
    count_missed(record.result.contributions, record.result.failures, record.key.round,
                 start.missed);
    if (record.key.round <= round && record.state == store::RoundState::kCommitted) {
      for (const store::Contribution& c : record.result.contributions) {
        start.counted.counted(c.client, {c.task, record.key.round});
      }
      forgotten = false;  // this round's state was computed after earlier losses
      std::vector<double> norms = norms_of(record);
      if (!norms.empty()) add_norms(std::move(norms), start.norms, start.first_norms);
    }
    if (record.state == store::RoundState::kOpen) continue;
    const std::vector<std::string> lost = who_lost(record.result.failures, start.counted);
    forgotten |= forget_lost(start, lost).all;
    if (record.key.round <= round) continue;
    PastAttempts& past = start.attempts[record.key.round];
    past.last = std::max(past.last, record.key.attempt);
    if (is_withdrawn(record)) continue;
    const bool is_excused =
        lacked_room(record.result.failures) ||
        lacked_memory(record.result.failures, record.result.contributions.size(),
                      context.job.updates_needed(record.cohort.size()));
    if (lost.empty() && !is_excused) ++past.failed;
    if (record.key.round != round + 1) continue;
    start.evaluated = true;  // a round's training begins after the evaluation of the one before
    for (const auto& [client, task] : record.cohort) start.abandoned[client] = task;
  }
  if (forgotten) start.at = first_position(*start.strategy, start.at.version, start.at.model);
  for (const store::RoundRecord& record : evaluations) {
    count_evaluations(record.result.contributions, record.result.failures, record.key.round,
                      start.evaluation_failures);
    if (record.key.round < round) continue;
    Attempt& last = start.evaluations[record.key.round];
    last = std::max(last, record.key.attempt);
    if (record.key.round == round && !is_withdrawn(record)) start.evaluated = true;
  }
  if (open) {
    start.open = to_open_attempt(*open);
    start.evaluated = true;  // is evaluating, or already training the next round
  }
  return start;
}

std::string end_line(const store::RunEnd& end) {
  const std::string_view state = store::to_string(end.state);
  return end.error.empty() ? fmt::format("run {}", state)
                           : fmt::format("run {}: {}", state, end.error);
}

Result<std::optional<protocol::Message>> settle_task(store::RunStore& store, TaskId id,
                                                     const std::string& client) {
  using Settlement = std::optional<protocol::Message>;
  STARLING_ASSIGN(const auto end, store.find_task_end(id));
  const auto ended = [id](std::string code, std::string message) {
    return Settlement(protocol::TaskEnded{id, std::move(code), std::move(message)});
  };
  if (!end || end->task.client != client) {
    return ended("unknown-task", "this coordinator issued no such task to this client");
  }
  const store::TaskRecord& task = end->task;
  const bool phase_is_over = end->model || end->passed || store::is_finished(end->run);
  // An attempt is open here if its run waits for its files since a restart.
  const bool may_count =
      task.outcome == store::TaskOutcome::kAbandoned || task.outcome == store::TaskOutcome::kOpen;
  if (may_count && !phase_is_over) return Settlement();
  if (task.outcome != store::TaskOutcome::kCommitted || !end->model) {
    return ended("round-closed", "the round closed without this update");
  }
  return Settlement(
      protocol::RoundCommitted{id, task.attempt.run, task.attempt.round, *end->model});
}

std::vector<std::string> round_lines(const RoundSummary& summary, const RoundOutcome* outcome,
                                     Round rounds) {
  const std::string head = fmt::format("[round {}/{}] ", summary.round, rounds);
  const std::size_t failures = summary.failures.size();
  const bool trained = summary.kind == protocol::TaskKind::kTrain;
  std::string counts =
      head + counted(summary.contributors.size(), trained ? "update" : "evaluation");
  if (failures > 0) {
    counts += fmt::format(", {} failure{} ({})", failures, failures == 1 ? "" : "s",
                          describe_failures(summary.failures));
  }
  if (!outcome) return {counts};
  std::string measures = head;
  if (outcome->train_loss)
    measures += fmt::format("train loss {}  ", decimal(*outcome->train_loss));
  measures += describe(outcome->train_metrics, "train ");
  if (const auto& found = outcome->measured) {
    measures += describe(*found);
  }
  std::vector<std::string> lines = {counts};
  if (const auto& why = outcome->not_evaluated) {
    lines.push_back(fmt::format("{}not evaluated at the coordinator: {}, {}", head, why->code(),
                                why->message()));
  }
  measures +=
      fmt::format("{:.2f} s{}  in {}  out {}", to_seconds(summary.elapsed),
                  summary.resumed ? " since the restart" : "", format_byte_count(summary.bytes_in),
                  format_byte_count(summary.bytes_out));
  lines.push_back(std::move(measures));
  return lines;
}

}  // namespace starling::coordinator
