// SPDX-License-Identifier: Apache-2.0
#include "core/report/run_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>

#include "core/report/json_members.h"

namespace starling::report {
namespace {

namespace json = boost::json;

constexpr std::string_view kSummary = "summary.json";
constexpr std::string_view kRun = "run.json";
constexpr std::size_t kEvaluationsMax = 1'000'000;

// A setting's value as a text, whatever type it was written in.
std::string setting_text(const json::value& value) {
  if (const auto* text = value.if_string()) return {text->data(), text->size()};
  return json::serialize(value);
}

using SettingTexts = std::vector<std::pair<std::string, std::string>>;

// None where there is no such member.
Result<SettingTexts> parse_settings(const json::object& object, std::string_view name,
                                    std::string_view where) {
  STARLING_ASSIGN(const json::object* settings, object_member(object, name, where));
  SettingTexts texts;
  if (settings == nullptr) return texts;
  for (const auto& [key, value] : *settings) {
    texts.emplace_back(std::string(key.data(), key.size()), setting_text(value));
  }
  return texts;
}

// Custom trainers choose their rows: what the data would be by default was not used.
void drop_unused_data(Run& run) {
  if (run.setting("model.kind") != "external") return;
  std::erase_if(run.settings, [](const auto& s) { return s.first.starts_with("data."); });
}

// The simulated world is no setting of the job, but one of the run.
Result<void> parse_federated_settings(const json::object& object, Run& run) {
  STARLING_ASSIGN(run.settings, parse_settings(object, "settings", kRun));
  STARLING_ASSIGN(run.asked, parse_settings(object, "simulation", kRun));
  STARLING_ASSIGN(run.inputs, parse_settings(object, "inputs", kRun));
  for (const auto& setting : run.asked) {
    if (std::ranges::find(run.settings, setting.first, &SettingTexts::value_type::first) ==
        run.settings.end()) {
      run.settings.push_back(setting);
    }
  }
  drop_unused_data(run);
  return {};
}

Result<TopologyFacts> parse_topology(const json::object& object) {
  const std::string where = fmt::format("{}, topology", kSummary);
  TopologyFacts facts;
  STARLING_ASSIGN(facts.name, text_member(object, "name", where));
  STARLING_ASSIGN(facts.nodes, number_member(object, "nodes", where));
  STARLING_ASSIGN(facts.edges, number_member(object, "edges", where));
  STARLING_ASSIGN(facts.period, number_member(object, "period", where));
  STARLING_ASSIGN(facts.diameter, number_member(object, "diameter", where));
  STARLING_ASSIGN(facts.slem, number_member(object, "slem", where));
  STARLING_ASSIGN(facts.spectral_gap, number_member(object, "spectral_gap", where));
  STARLING_ASSIGN(facts.rounds_to_consensus, number_member(object, "rounds_to_consensus", where));
  STARLING_ASSIGN(facts.directed, bool_member(object, "directed", where));
  STARLING_ASSIGN(facts.time_varying, bool_member(object, "time_varying", where));
  STARLING_ASSIGN(facts.connected, bool_member(object, "connected", where));
  STARLING_ASSIGN(const json::object* degree, object_member(object, "degree", where));
  if (degree != nullptr) {
    STARLING_ASSIGN(facts.degree_min, number_member(*degree, "min", where));
    STARLING_ASSIGN(facts.degree_mean, number_member(*degree, "mean", where));
    STARLING_ASSIGN(facts.degree_max, number_member(*degree, "max", where));
  }
  return facts;
}

Result<void> parse_totals(const json::object& object, Run& run) {
  const std::string where = fmt::format("{}, totals", kSummary);
  STARLING_ASSIGN(run.virtual_seconds, number_member(object, "virtual_seconds", where));
  STARLING_ASSIGN(run.wall_seconds, number_member(object, "wall_seconds", where));
  STARLING_ASSIGN(run.bytes_sent, number_member(object, "bytes_sent", where));
  STARLING_ASSIGN(run.messages, number_member(object, "messages", where));
  STARLING_ASSIGN(run.node_steps_per_second, number_member(object, "node_steps_per_second", where));
  return {};
}

// Of a service's run.json none.
Result<void> parse_program(const json::object& object, std::string_view where, Run& run) {
  STARLING_ASSIGN(run.program, text_member(object, "program", where));
  STARLING_ASSIGN(run.version, text_member(object, "version", where));
  if (!run.version.empty()) run.program += " " + run.version;
  return {};
}

// `last_step`: of the last evaluation, where the run has ended.
Result<Run> parse_summary(std::string_view text, std::optional<double>& last_step) {
  STARLING_ASSIGN(const json::object object, parse_object(text, kSummary));
  Run run;
  STARLING_TRY(parse_program(object, kSummary, run));
  run.real_time = run.program.starts_with("starling-gossip launch");
  STARLING_ASSIGN(run.failure, text_member(object, "failed", kSummary));
  run.failed = !run.failure.empty();
  STARLING_ASSIGN(run.incomplete, text_member(object, "incomplete", kSummary));
  STARLING_ASSIGN(run.algorithm, text_member(object, "algorithm", kSummary));
  STARLING_ASSIGN(run.trace_sha256, text_member(object, "trace_sha256", kSummary));
  STARLING_ASSIGN(run.seed, number_member(object, "seed", kSummary));
  STARLING_ASSIGN(run.nodes, number_member(object, "nodes", kSummary));
  STARLING_ASSIGN(run.steps, number_member(object, "steps", kSummary));
  STARLING_ASSIGN(run.parameters, number_member(object, "parameters", kSummary));
  STARLING_ASSIGN(run.settings, parse_settings(object, "settings", kSummary));
  STARLING_ASSIGN(run.inputs, parse_settings(object, "inputs", kSummary));
  drop_unused_data(run);
  STARLING_ASSIGN(const json::object* topology, object_member(object, "topology", kSummary));
  if (topology != nullptr) {
    STARLING_ASSIGN(run.topology, parse_topology(*topology));
  }
  STARLING_ASSIGN(const json::object* totals, object_member(object, "totals", kSummary));
  if (totals != nullptr) STARLING_TRY(parse_totals(*totals, run));
  STARLING_ASSIGN(const json::object* final, object_member(object, "final", kSummary));
  if (final != nullptr) {
    STARLING_ASSIGN(last_step, number_member(*final, "step", "summary.json, final"));
  }
  return run;
}

// Names with null have no value.
Result<void> parse_metrics(const json::object& object, std::string_view where,
                           Evaluation& evaluation) {
  for (std::size_t i = 0; i < kSources.size(); ++i) {
    STARLING_ASSIGN(const json::object* metrics, object_member(object, kSources[i].key, where));
    if (metrics == nullptr) continue;
    const std::string inside = fmt::format("{}, {}", where, kSources[i].key);
    for (const auto& metric : *metrics) {
      std::string name(metric.key().data(), metric.key().size());
      STARLING_ASSIGN(const auto value, number_member(*metrics, name, inside));
      if (value) evaluation.metrics[{std::move(name), static_cast<Source>(i)}] = *value;
    }
  }
  return {};
}

Result<Evaluation> parse_evaluation(std::string_view line, std::string_view where) {
  STARLING_ASSIGN(const json::object object, parse_object(line, where));
  Evaluation evaluation;
  for (std::size_t i = 0; i < kMeasures.size(); ++i) {
    STARLING_ASSIGN(const auto value, number_member(object, kMeasures[i].key, where));
    evaluation.values[i] = value.value_or(kNotMeasured);
  }
  STARLING_TRY(parse_metrics(object, where, evaluation));
  return evaluation;
}

Result<void> add(Run& run, const Evaluation& evaluation, std::string_view where) {
  const double step = evaluation.at(Measure::kStep);
  if (!(step >= 0)) return bad_run(where, "it has no 'step' of 0 or more");
  // Equal steps are no mistake: where virtual time ends a run, no step may have ended since the
  // last.
  if (!run.evaluations.empty() && step < run.evaluations.back().at(Measure::kStep)) {
    return bad_run(where, fmt::format("step {} follows step {}; steps must not descend", step,
                                      run.evaluations.back().at(Measure::kStep)));
  }
  if (run.evaluations.size() == kEvaluationsMax) {
    return bad_run(where, fmt::format("more than {} evaluations", kEvaluationsMax));
  }
  run.evaluations.push_back(evaluation);
  return {};
}

// Of a round of run.json: the measures that stand there, bytes and times without what came before,
// with the evaluation of its model by clients.
Result<Evaluation> parse_round(const json::object& round, std::string_view where) {
  Evaluation evaluation;
  const auto take = [&](std::string_view key, Measure to) -> Result<void> {
    STARLING_ASSIGN(const auto value, number_member(round, key, where));
    evaluation.at(to) = value.value_or(kNotMeasured);
    return {};
  };
  STARLING_TRY(take("round", Measure::kStep));
  STARLING_TRY(take("virtual_seconds", Measure::kVirtualSeconds));
  STARLING_TRY(take("seconds", Measure::kWallSeconds));
  STARLING_TRY(take("train_loss", Measure::kTrainLoss));
  STARLING_TRY(take("eval_loss", Measure::kEvalLoss));
  STARLING_TRY(take("eval_accuracy", Measure::kEvalAccuracy));
  STARLING_TRY(take("federated_loss", Measure::kHeldOutLoss));
  STARLING_TRY(take("federated_accuracy", Measure::kHeldOutAccuracy));
  STARLING_ASSIGN(const auto evaluated, number_member(round, "federated_seconds", where));
  evaluation.at(Measure::kVirtualSeconds) += evaluated.value_or(0);
  evaluation.at(Measure::kWallSeconds) += evaluated.value_or(0);
  double& bytes = evaluation.at(Measure::kBytesSent) = 0;
  for (const char* key : {"bytes_in", "bytes_out", "federated_bytes_in", "federated_bytes_out"}) {
    STARLING_ASSIGN(const auto some, number_member(round, key, where));
    bytes += some.value_or(0);
  }
  STARLING_TRY(parse_metrics(round, where, evaluation));
  return evaluation;
}

Result<void> parse_outcome(const json::object& object, Run& run) {
  STARLING_ASSIGN(run.state, text_member(object, "state", kRun));
  run.failed = run.state == "failed";
  STARLING_ASSIGN(const json::object* error, object_member(object, "error", kRun));
  if (error != nullptr) {
    STARLING_ASSIGN(run.failure, text_member(*error, "message", kRun));
  }
  STARLING_ASSIGN(run.stopped_early, text_member(object, "stopped_early", kRun));
  STARLING_ASSIGN(const json::object* best, object_member(object, "best_round", kRun));
  if (best == nullptr) return {};
  const std::string where = fmt::format("{}, best_round", kRun);
  STARLING_ASSIGN(const auto round, number_member(*best, "round", where));
  STARLING_ASSIGN(const auto value, number_member(*best, "value", where));
  STARLING_ASSIGN(std::string metric, text_member(*best, "metric", where));
  if (round && value) run.best = Run::BestRound{*round, std::move(metric), *value};
  return {};
}

}  // namespace

Result<Run> parse_simulation(std::string_view summary, std::string_view metrics) {
  std::optional<double> last_step;
  STARLING_ASSIGN(Run run, parse_summary(summary, last_step));
  for (std::size_t number = 1; !metrics.empty(); ++number) {
    const std::size_t end = std::min(metrics.find('\n'), metrics.size());
    const std::string_view line = metrics.substr(0, end);
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
    if (line.find_first_not_of(" \r\t") == line.npos) continue;
    const std::string where = fmt::format("metrics.jsonl, line {}", number);
    STARLING_ASSIGN(const Evaluation evaluation, parse_evaluation(line, where));
    STARLING_TRY(add(run, evaluation, where));
  }
  if (last_step && run.last(Measure::kStep) != *last_step) {
    return bad_run("metrics.jsonl",
                   fmt::format("its last evaluation is not that of step {}, as summary.json says: "
                               "lines are missing",
                               *last_step));
  }
  return run;
}

bool is_federated_run(std::string_view text) {
  const auto object = parse_object(text, kRun);
  return object && object->contains("rounds");
}

Result<Run> parse_federated_run(std::string_view text) {
  STARLING_ASSIGN(const json::object object, parse_object(text, kRun));
  Run run;
  run.kind = RunKind::kFederated;
  STARLING_TRY(parse_program(object, kRun, run));
  if (run.program.empty()) run.program = "starling-coordinator";
  STARLING_ASSIGN(run.name, text_member(object, "name", kRun));
  STARLING_TRY(parse_outcome(object, run));
  STARLING_ASSIGN(run.seed, number_member(object, "seed", kRun));
  STARLING_TRY(parse_federated_settings(object, run));
  const json::value* rounds = object.if_contains("rounds");
  if (rounds == nullptr || !rounds->is_array()) return bad_run(kRun, "it has no list 'rounds'");
  double bytes = 0;
  double seconds = 0;
  for (std::size_t i = 0; i < rounds->get_array().size(); ++i) {
    const std::string where = fmt::format("{}, rounds[{}]", kRun, i);
    const json::object* round = rounds->get_array()[i].if_object();
    if (round == nullptr) return bad_run(where, "not an object");
    STARLING_ASSIGN(Evaluation evaluation, parse_round(*round, where));
    STARLING_ASSIGN(const std::string state, text_member(*round, "state", where));
    bytes += evaluation.at(Measure::kBytesSent);
    if (const double took = evaluation.at(Measure::kWallSeconds); took >= 0) seconds += took;
    if (state != "committed") continue;
    evaluation.at(Measure::kBytesSent) = bytes;
    evaluation.at(Measure::kWallSeconds) = seconds;
    STARLING_TRY(add(run, evaluation, where));
  }
  run.bytes_sent = bytes;
  run.wall_seconds = seconds;
  run.virtual_seconds = run.last(Measure::kVirtualSeconds);
  run.steps = run.last(Measure::kStep);
  return run;
}

}  // namespace starling::report
