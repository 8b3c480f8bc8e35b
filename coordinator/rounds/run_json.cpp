// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/run_json.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <set>

#include "coordinator/job/job_text.h"
#include "coordinator/rounds/run_context.h"
#include "coordinator/rounds/run_records.h"
#include "core/config/settings_json.h"
#include "core/store/checkpoints.h"

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

json::value metrics_to_json(const store::MetricValues& metrics) {
  if (metrics.empty()) return nullptr;
  json::object object;
  for (const auto& [name, value] : metrics) object[name] = or_null(value);
  return object;
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
  round["federated_metrics"] = metrics_to_json(record.result.evaluation.metrics);
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
      {"train_metrics", metrics_to_json(record.result.train_metrics)},
      {"eval_loss", or_null(record.result.evaluation.loss)},
      {"eval_accuracy", or_null(record.result.evaluation.accuracy)},
      {"eval_metrics", metrics_to_json(record.result.evaluation.metrics)},
      {"started", format_rfc3339(record.started)},
      {"seconds", closed ? json::value(record.result.seconds) : json::value(nullptr)},
      {"bytes_in", record.result.bytes_in},
      {"bytes_out", record.result.bytes_out},
      {"abandoned", or_null(record.abandonment)},
      {"model_sha256", record.model ? json::value(record.model->hex()) : json::value(nullptr)}};
  add_federated(evaluation_of(record, evaluations), round);
  return round;
}

// As stored when the run began; until then, or where an earlier version began it, as its job has
// them.
Result<Settings> settings_of(const store::Run& run) {
  if (!run.settings.empty()) return parse_settings(run.settings);
  STARLING_ASSIGN(Job job, read_job(run.job, "job"));
  const strategy::Catalogue& strategies = strategy::builtin_strategies();
  STARLING_ASSIGN(const auto strategy, strategies.make_server(job.training.strategy, job.server));
  resolve_norm_max(job.aggregation, *strategy);
  return job_settings(std::move(job));
}

json::value or_null(const Result<Settings>& settings) {
  if (!settings) return nullptr;
  return config::to_json(*settings);
}

std::vector<store::ModelRecord> models_of(const std::vector<store::RoundRecord>& rounds,
                                          const Evaluations& evaluations) {
  std::vector<store::ModelRecord> models;
  for (const store::RoundRecord& record : rounds) {
    if (!record.model) continue;
    store::ModelRecord& model = models.emplace_back();
    model.round = record.key.round;
    model.evaluation = record.result.evaluation;
    const store::RoundRecord* found = evaluation_of(record, evaluations);
    if (found != nullptr) model.federated = found->result.evaluation;
  }
  return models;
}

// Why a run that completed ended before its last round, and which model is the best.
void add_outcome(const store::Run& run, const std::vector<store::RoundRecord>& rounds,
                 const std::vector<store::RoundRecord>& evaluations, const Evaluations& last,
                 json::object& object) {
  const auto read = read_job(run.job, "job");
  const Job job = read ? *read : Job();
  const std::vector<store::ModelRecord> models = models_of(rounds, last);
  const auto why = replay_stopping(job.stop, rounds, evaluations).reason();
  const bool early = run.state == store::RunState::kCompleted && !models.empty() &&
                     models.back().round < static_cast<Round>(job.job.rounds);
  object["stopped_early"] = early && why ? json::value(*why) : json::value(nullptr);
  const auto best = store::best_model(models, metric_of(job.stop));
  object["best_round"] = best ? json::value{{"round", best->round},
                                            {"metric", word_of(best->by)},
                                            {"value", best->value}}
                              : json::value(nullptr);
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
  add_outcome(run, rounds, evaluations, last, object);
  object["initial_sha256"] =
      run.initial_sha256 ? json::value(run.initial_sha256->hex()) : json::value(nullptr);
  object["settings"] = or_null(settings_of(run));
  object["rounds"] = std::move(array);
  return object;
}

void add_progress(const RoundMachine& phase, json::value& run) {
  const RoundMachine::Options& open = phase.options();
  const bool trains = open.kind == protocol::TaskKind::kTrain;
  const std::string prefix = trains ? "" : "federated_";
  for (json::value& value : run.as_object().at("rounds").as_array()) {
    json::object& round = value.as_object();
    if (round.at("round") != json::value(open.round)) continue;
    if (round.at(prefix + "state") != json::value("open")) continue;
    round[trains ? "updates" : "federated_clients"] = phase.counted();
    round[prefix + "bytes_in"] = phase.bytes_in();
    round[prefix + "bytes_out"] = phase.bytes_out();
  }
}

namespace {

using Names = std::set<std::string>;

// None of devices, whatever their run's job says, of an older run, and where nothing was held out.
std::optional<double> recorded_hold_out(const json::object& run) {
  const json::value* program = run.if_contains("program");
  if (program == nullptr || *program != kSimulateProgram) return std::nullopt;
  const json::value* settings = run.if_contains("settings");
  const json::object* all = settings ? settings->if_object() : nullptr;
  const json::value* said = all ? all->if_contains("data.hold-out") : nullptr;
  if (said == nullptr || !said->is_string()) return std::nullopt;
  const auto read =
      FieldText<std::optional<double>>::read(said->get_string().c_str(), {.min = 0, .max = 0.9});
  return read ? *read : std::nullopt;
}

// The clients of a round's contributors or failures, of these only those of a code.
std::optional<Names> clients_of(const json::object& round, std::string_view list,
                                std::string_view code = "") {
  const json::value* entries = round.if_contains(json::string_view(list.data(), list.size()));
  if (!entries || !entries->is_array()) return std::nullopt;
  Names names;
  for (const json::value& entry : entries->get_array()) {
    const json::object* object = entry.if_object();
    const json::value* name = object ? object->if_contains("client") : nullptr;
    if (!name || !name->is_string()) return std::nullopt;
    const json::value* its_code = object->if_contains("code");
    if (!code.empty() && (!its_code || *its_code != json::value(json::string(code)))) continue;
    names.emplace(name->get_string().c_str());
  }
  return names;
}

}  // namespace

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
  recorded.hold_out = recorded_hold_out(*run);
  Names lost;  // their states, in the attempts since the last committed round
  for (const json::value& entry : rounds->get_array()) {
    const json::object* round = entry.if_object();
    if (!round) return bad("a round is not an object");
    auto lost_now = clients_of(*round, "failures", client::kStateLost);
    if (!lost_now) return bad("a round's failures do not name their clients");
    const json::value* state = round->if_contains("state");
    if (!state || *state != json::value("committed")) {
      lost.merge(*lost_now);
      continue;
    }
    const json::value* number = round->if_contains("round");
    const json::value* model = round->if_contains("model_sha256");
    const auto contributors = clients_of(*round, "contributors");
    if (!number || !number->is_int64() || !contributors || !model || !model->is_string()) {
      return bad("a committed round lacks its number, contributors or model_sha256");
    }
    if (contributors->empty()) return bad("a committed round has no contributors");
    const auto index = static_cast<Round>(number->get_int64());
    recorded.replay.contributors[index] = {contributors->begin(), contributors->end()};
    recorded.replay.lost[index].assign(lost.begin(), lost.end());
    const json::value* population = round->if_contains("population");
    if (population && population->is_int64() && population->get_int64() > 0) {
      recorded.replay.populations[index] = static_cast<std::uint64_t>(population->get_int64());
    }
    lost = *std::move(lost_now);
    recorded.models[index] = model->get_string().c_str();
  }
  return recorded;
}

}  // namespace starling::coordinator
