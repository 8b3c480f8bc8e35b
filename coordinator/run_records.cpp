// SPDX-License-Identifier: Apache-2.0
#include "coordinator/run_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <set>

#include "coordinator/job_text.h"
#include "core/base/check.h"
#include "core/base/counted.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

json::value or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? json::value(*value) : json::value(nullptr);
}

json::value or_null(const std::optional<WallTime>& value) {
  return value ? json::value(format_rfc3339(*value)) : json::value(nullptr);
}

json::value or_null(const std::optional<store::Abandonment>& why) {
  return why ? json::value{{"code", why->code}, {"reason", why->reason}} : json::value(nullptr);
}

json::array failures_to_json(const std::vector<store::Failure>& failures) {
  json::array array;
  for (const store::Failure& failure : failures) {
    array.push_back({{"client", failure.client},
                     {"code", failure.code},
                     {"reason", failure.reason},
                     {"bytes", failure.bytes_in + failure.bytes_out}});
  }
  return array;
}

// How far a contribution moves the weighted sum; by weight alone in rounds without norms.
double pull_of(const store::Contribution& contribution) {
  return contribution.weight * contribution.norm.value_or(1);
}

// Warns from three contributions on: of two, one nearly always counts for more than the other.
json::array warnings_of(const store::RoundRecord& record) {
  const auto& contributions = record.result.contributions;
  if (record.state != store::RoundState::kCommitted || contributions.size() < 3) return {};
  double total = 0;
  for (const store::Contribution& c : contributions) total += pull_of(c);
  json::array warnings;
  for (const store::Contribution& c : contributions) {
    if (pull_of(c) <= total / 2) continue;
    const std::string norm = c.norm ? fmt::format("{:.4g}", *c.norm) : "unknown";
    warnings.push_back(json::value(fmt::format(
        "{} counted for more than the {} others together: {:.1f} % of weight x norm (weight {:g}, "
        "norm {})",
        c.client, contributions.size() - 1, 100 * pull_of(c) / total, c.weight, norm)));
  }
  return warnings;
}

bool is_withdrawn(const store::RoundRecord& record) {
  return record.abandonment && store::is_withdrawal(*record.abandonment);
}

// By round the last attempt at an evaluation by clients.
using Evaluations = std::map<Round, const store::RoundRecord*>;

Evaluations last_attempts(const std::vector<store::RoundRecord>& evaluations) {
  Evaluations last;
  for (const store::RoundRecord& record : evaluations) {
    if (!is_withdrawn(record)) last[record.key.round] = &record;
  }
  return last;
}

// Of this model: a round that was withdrawn made another one.
const store::RoundRecord* evaluation_of(const store::RoundRecord& round,
                                        const Evaluations& evaluations) {
  const auto found = evaluations.find(round.key.round);
  if (!round.model || found == evaluations.end()) return nullptr;
  return found->second->base_model == *round.model ? found->second : nullptr;
}

// `found`: null where there was none.
void add_federated(const store::RoundRecord* found, json::object& round) {
  const bool closed = found != nullptr && found->state != store::RoundState::kOpen;
  const auto after = [](bool is_known, auto value) {
    return is_known ? json::value(value) : json::value(nullptr);
  };
  const store::RoundRecord record = found ? *found : store::RoundRecord();
  double weight = 0;
  for (const store::Contribution& c : record.result.contributions) weight += c.weight;
  round["federated_state"] = after(found, store::to_string(record.state));
  round["federated_asked"] = after(found, record.cohort.size());
  round["federated_clients"] = after(closed, record.result.contributions.size());
  round["federated_weight"] = after(closed, weight);
  round["federated_loss"] = or_null(record.result.evaluation.loss);
  round["federated_accuracy"] = or_null(record.result.evaluation.accuracy);
  round["federated_failures"] = failures_to_json(record.result.failures);
  round["federated_abandoned"] = or_null(record.abandonment);
  round["federated_seconds"] = after(closed, record.result.seconds);
  round["federated_bytes_in"] = after(found, record.result.bytes_in);
  round["federated_bytes_out"] = after(found, record.result.bytes_out);
}

json::object round_to_json(const store::RoundRecord& record, const Evaluations& evaluations) {
  json::array contributors;
  for (const store::Contribution& c : record.result.contributions) {
    contributors.push_back({{"client", c.client}, {"weight", c.weight}, {"norm", or_null(c.norm)}});
  }
  const bool closed = record.state != store::RoundState::kOpen;
  json::object round{
      {"round", record.key.round},
      {"attempt", record.key.attempt},
      {"state", store::to_string(record.state)},
      {"population", record.population > 0 ? json::value(record.population) : json::value(nullptr)},
      {"cohort", record.cohort.size()},
      {"updates", record.result.contributions.size()},
      {"contributors", std::move(contributors)},
      {"warnings", warnings_of(record)},
      {"failures", failures_to_json(record.result.failures)},
      {"train_loss", or_null(record.result.train_loss)},
      {"eval_loss", or_null(record.result.evaluation.loss)},
      {"eval_accuracy", or_null(record.result.evaluation.accuracy)},
      {"started", format_rfc3339(record.started)},
      {"seconds", closed ? json::value(record.result.seconds) : json::value(nullptr)},
      {"bytes_in", record.result.bytes_in},
      {"bytes_out", record.result.bytes_out},
      {"abandoned", or_null(record.abandonment)},
      {"model_sha256", record.model ? json::value(record.model->hex()) : json::value(nullptr)}};
  add_federated(evaluation_of(record, evaluations), round);
  return round;
}

// Rounds that an earlier version committed have none.
std::vector<double> norms_of(const store::RoundRecord& record) {
  std::vector<double> norms;
  for (const store::Contribution& c : record.result.contributions) {
    if (c.norm) norms.push_back(*c.norm);
  }
  return norms;
}

std::string describe_failures(const std::vector<RoundFailure>& failures) {
  constexpr std::size_t kNamed = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, failures.size()); ++i) {
    const RoundFailure& f = failures[i];
    text += fmt::format("{}{}: {}, {}", i == 0 ? "" : "; ", f.client, f.code, f.reason);
    if (f.bytes_in > 0) text += fmt::format(", {} received", format_byte_count(f.bytes_in));
  }
  if (failures.size() > kNamed) text += fmt::format("; and {} more", failures.size() - kNamed);
  return text;
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
  if (outcome->measured) {
    result.evaluation = {outcome->measured->loss, outcome->measured->accuracy};
  }
  return result;
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

store::Metric metric_of(const StopOptions& stop) {
  using store::Metric;
  constexpr std::array kByWord = {Metric::kAny, Metric::kAccuracy, Metric::kLoss,
                                  Metric::kFederatedAccuracy, Metric::kFederatedLoss};
  static_assert(kByWord.size() == kMetrics.size());
  const auto word = std::ranges::find(kMetrics, stop.metric);
  STARLING_CHECK(word != kMetrics.end());
  return kByWord[static_cast<std::size_t>(word - kMetrics.begin())];
}

namespace {

// Of a committed phase.
void add_measured(const store::RoundRecord& record, RunStart& start) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const bool federated = record.key.kind == store::PhaseKind::kEvaluate;
  const store::Evaluation& found = record.result.evaluation;
  if (!federated && !found.loss && !found.accuracy) return;
  start.stopping.record(record.key.round,
                        {federated, found.loss.value_or(kNone), found.accuracy.value_or(kNone)});
}

// Only what a client is to blame for; why it was not waited for any longer says nothing.
void add_failures(const store::RoundRecord& record, bool blames_for_norms,
                  ClientFailures& failures) {
  const protocol::TaskKind kind = to_kind(record.key.kind);
  for (const store::Contribution& c : record.result.contributions) failures.succeeded(c.client);
  for (const store::Failure& failure : record.result.failures) {
    const bool by_norm = failure.code == kNormAboveBound;
    if (is_circumstance(failure.code, kind) || (by_norm && !blames_for_norms)) continue;
    const bool permanent =
        kind == protocol::TaskKind::kTrain && failure.code.starts_with(kPermanent);
    failures.failed(failure.client, failure.reason, permanent);
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
      .stopping = EarlyStopping(context.job.stop)};
  const Round round = start.at.version.round;
  for (const store::RoundRecord& record : rounds) {
    const bool blames_for_norms =
        start.norm_raises.attempt_ended(record.result.contributions, record.result.failures,
                                        record.state == store::RoundState::kCommitted, start.norms);
    add_failures(record, blames_for_norms, start.failures);
    count_missed(record.result.contributions, record.result.failures, start.missed);
    if (record.key.round <= round && record.state == store::RoundState::kCommitted) {
      add_measured(record, start);
      for (const store::Contribution& c : record.result.contributions) {
        start.last_counted[c.client] = {c.task, record.key.round};
      }
      std::vector<double> norms = norms_of(record);
      if (record.key.round + NormBound::kRounds > round && !norms.empty()) {
        start.norms.push_back(std::move(norms));
      }
    }
    if (record.key.round <= round || record.state == store::RoundState::kOpen) continue;
    PastAttempts& past = start.attempts[record.key.round];
    past.last = std::max(past.last, record.key.attempt);
    if (!is_withdrawn(record) && !lacked_room(record.result.failures)) ++past.failed;
  }
  for (const store::RoundRecord& record : evaluations) {
    add_failures(record, false, start.evaluation_failures);
    if (record.state == store::RoundState::kCommitted) add_measured(record, start);
    if (record.key.round < round) continue;
    Attempt& last = start.evaluations[record.key.round];
    last = std::max(last, record.key.attempt);
    if (record.key.round == round && !is_withdrawn(record)) start.evaluated = true;
  }
  if (open) {
    start.open = to_open_attempt(*open);
    if (start.open->kind == protocol::TaskKind::kEvaluate) start.evaluated = true;
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
  // An attempt is open here if its run was active before a restart and now waits for its turn.
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
  if (!trained) {
    return {counts, fmt::format("{}held-out loss {:.4f}  accuracy {:.4f}  {:.2f} s  out {}", head,
                                outcome->measured->loss, outcome->measured->accuracy,
                                to_seconds(summary.elapsed), format_byte_count(summary.bytes_out))};
  }
  std::string measures = head;
  if (outcome->train_loss) measures += fmt::format("train loss {:.4f}  ", *outcome->train_loss);
  if (outcome->measured) {
    measures += fmt::format("eval loss {:.4f}  accuracy {:.4f}  ", outcome->measured->loss,
                            outcome->measured->accuracy);
  }
  std::vector<std::string> lines = {counts};
  for (const auto& [task, sentence] : outcome->notes) {
    const auto of = std::ranges::find(summary.contributors, task, &Contributor::task);
    lines.push_back(fmt::format("{}{}: {}", head, of->client, sentence));
  }
  measures +=
      fmt::format("{:.2f} s{}  in {}  out {}", to_seconds(summary.elapsed),
                  summary.resumed ? " since the restart" : "", format_byte_count(summary.bytes_in),
                  format_byte_count(summary.bytes_out));
  lines.push_back(std::move(measures));
  return lines;
}

namespace {

// As stored when the run began.
json::value settings_of(const store::Run& run) {
  const auto settings = parse_settings(run.settings);
  if (!settings) return nullptr;
  json::object object;
  for (const auto& [key, value] : *settings) object[key] = value;
  return object;
}

}  // namespace

json::value run_to_json(const store::Run& run, const std::vector<store::RoundRecord>& rounds,
                        const std::vector<store::RoundRecord>& evaluations) {
  const Evaluations last = last_attempts(evaluations);
  json::array array;
  for (const store::RoundRecord& record : rounds) array.push_back(round_to_json(record, last));
  json::object object{{"id", run.id.value()},
                      {"name", run.name},
                      {"state", store::to_string(run.state)},
                      {"seed", run.seed},
                      {"submitted", format_rfc3339(run.submitted)},
                      {"started", or_null(run.started)},
                      {"ended", or_null(run.ended)}};
  object["error"] = run.error_code.empty()
                        ? json::value(nullptr)
                        : json::value{{"code", run.error_code}, {"message", run.error}};
  object["settings"] = settings_of(run);
  object["rounds"] = std::move(array);
  return object;
}

Result<RecordedRun> parse_recorded_run(std::string_view text) {
  const auto bad = [](std::string why) {
    return rejected("bad-replay", "the recorded run cannot be replayed: " + std::move(why));
  };
  boost::system::error_code code;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), code);
  if (code) return bad("it is not JSON (" + code.message() + ")");
  const json::object* run = value.if_object();
  const json::value* seed = run ? run->if_contains("seed") : nullptr;
  const json::value* rounds = run ? run->if_contains("rounds") : nullptr;
  if (!seed || !seed->is_number() || !rounds || !rounds->is_array()) {
    return bad("it has no seed or no rounds");
  }
  RecordedRun recorded;
  recorded.seed = seed->is_uint64()
                      ? seed->get_uint64()
                      : static_cast<std::uint64_t>(seed->to_number<std::int64_t>(code));
  const json::value* set = run->if_contains("instruction_set");
  if (set && set->is_string()) recorded.instruction_set = set->get_string().c_str();
  for (const json::value& entry : rounds->get_array()) {
    const json::object* round = entry.if_object();
    if (!round) return bad("a round is not an object");
    const json::value* state = round->if_contains("state");
    if (!state || *state != json::value("committed")) continue;
    const json::value* number = round->if_contains("round");
    const json::value* contributors = round->if_contains("contributors");
    const json::value* model = round->if_contains("model_sha256");
    if (!number || !number->is_int64() || !contributors || !contributors->is_array() || !model ||
        !model->is_string()) {
      return bad("a committed round lacks its number, contributors or model_sha256");
    }
    std::set<std::string> names;
    for (const json::value& contributor : contributors->get_array()) {
      const json::object* object = contributor.if_object();
      const json::value* name = object ? object->if_contains("client") : nullptr;
      if (!name || !name->is_string()) return bad("a contributor has no name");
      names.emplace(name->get_string().c_str());
    }
    if (names.empty()) return bad("a committed round has no contributors");
    const auto index = static_cast<Round>(number->get_int64());
    recorded.contributors[index] = {names.begin(), names.end()};
    recorded.models[index] = model->get_string().c_str();
  }
  return recorded;
}

}  // namespace starling::coordinator
