// SPDX-License-Identifier: Apache-2.0
#include "coordinator/job/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coordinator/job/fallback_network.h"
#include "coordinator/job/norm_bound.h"
#include "core/aggregate/middle_mean.h"
#include "core/train/evaluator.h"

namespace starling::coordinator {
namespace {

// A model that was trained by gossip is the outcome of no client half but federated averaging's.
Result<void> check_fallback_strategy(const Job& job, const strategy::Catalogue& strategies) {
  if (!job.fallback.enabled()) return {};
  if (strategies.for_clients(job.training.strategy).name == "fedavg") return {};
  return wrong_setting(
      "setting-invalid",
      fmt::format("fallback.topology is set, but strategy.name = '{}' cannot take a "
                  "model that clients trained without the coordinator; use one of "
                  "fedavg, fedavgm, fedadagrad, fedadam and fedyogi",
                  job.training.strategy.name));
}

// Which metric that is, and whether more of it is better.
Result<void> check_stop_metric(const Job& job) {
  const StopOptions& stop = job.stop;
  const std::string name = stop.name();
  const bool is_built_in = name == "accuracy" || name == "loss";
  if (!is_built_in && !job.training.model.is_external()) {
    return wrong_setting(
        "setting-invalid",
        fmt::format("stop.metric = '{}' is none that the built-in model '{}' has; use accuracy, "
                    "loss, federated-accuracy, federated-loss or none",
                    stop.metric, job.training.model.kind));
  }
  if (!is_built_in && !train::is_metric_name(name)) {
    return wrong_setting(
        "setting-invalid",
        fmt::format("stop.metric = '{}' is no name of a metric: use accuracy, loss, or 1 to {} of "
                    "a-z, A-Z, 0-9 and ._-/@%, with federated- before it for the clients' "
                    "evaluations",
                    stop.metric, train::kMetricNameBytesMax));
  }
  if (!is_built_in && stop.mode == "auto") {
    return wrong_setting("setting-invalid",
                         fmt::format("stop.metric = '{}' needs stop.mode = \"max\" where a larger "
                                     "value is better, else \"min\"",
                                     stop.metric));
  }
  if (is_built_in && stop.mode == (name == "loss" ? "max" : "min")) {
    return wrong_setting("setting-invalid",
                         fmt::format("stop.mode = '{}' contradicts stop.metric = '{}', of which {} "
                                     "is better; leave stop.mode out",
                                     stop.mode, stop.metric, name == "loss" ? "less" : "more"));
  }
  return {};
}

// A simulation may find rows to evaluate on in data.dataset.
bool may_evaluate_own_data(const Job& job) {
  return !job.data.dataset.empty() && job.evaluate.dataset != kNoDataset &&
         job.data.hold_out.value_or(1) > 0 && !job.training.model.is_external();
}

Result<void> check_stopping(const Job& job) {
  if (!job.stop.enabled()) return {};
  STARLING_TRY(check_stop_metric(job));
  const bool federated = job.stop.is_federated();
  if (federated && job.evaluate.federated_every == 0) {
    return wrong_setting("setting-invalid", "stop.metric = '" + job.stop.metric +
                                                "' needs evaluate.federated-every above 0");
  }
  if (may_evaluate_own_data(job) && job.evaluate.every > 0) return {};
  return check_stop_dataset(job);
}

Result<void> check_rule(const Job& job, const strategy::Catalogue& strategies) {
  const AggregationOptions& options = job.aggregation;
  if (options.rule == "mean") return {};
  if (job.round.cohort < options.updates_min()) {
    return wrong_setting(
        "setting-invalid",
        fmt::format("aggregation.trim = {} needs more than {} updates a round, and round.cohort is "
                    "{}: lower the one or raise the other",
                    options.trim, 2 * options.trim, job.round.cohort));
  }
  if (options.weight == "rows") {
    return wrong_setting("setting-invalid",
                         fmt::format("aggregation.weight = 'rows' has no meaning with "
                                     "aggregation.rule = '{}', which counts every client the same",
                                     options.rule));
  }
  STARLING_ASSIGN(const auto strategy, strategies.make_server(job.training.strategy, job.server));
  if (strategy->needs() == strategy::Needs::kCentre) return {};
  return wrong_setting(
      "setting-invalid",
      fmt::format(
          "strategy.name = '{}' is defined for means only, not for aggregation.rule = '{}'; "
          "use one of fedavg, fedprox, fedavgm, fedadagrad, fedadam, fedyogi and diloco",
          job.training.strategy.name, options.rule));
}

Result<void> check_weight(const Job& job, const strategy::Catalogue& strategies) {
  if (job.aggregation.weight != "rows") return {};
  STARLING_ASSIGN(const auto strategy, strategies.make_server(job.training.strategy, job.server));
  const bool averages_states = strategy->weighting() == strategy::Weighting::kUniform &&
                               strategy->needs() == strategy::Needs::kMeans &&
                               !strategy->initial_state(1).empty();
  if (!averages_states) return {};
  return wrong_setting(
      "setting-invalid",
      fmt::format("aggregation.weight = 'rows' does not go with strategy.name = '{}': the server's "
                  "state is the mean over all clients, each counted the same; use 'uniform' or "
                  "'strategy'",
                  job.training.strategy.name));
}

}  // namespace

std::unique_ptr<const aggregate::JointRule> AggregationOptions::joint_rule() const {
  using aggregate::MiddleMean;
  if (rule == "median") return std::make_unique<MiddleMean>(MiddleMean::median());
  if (rule == "trimmed-mean") {
    return std::make_unique<MiddleMean>(MiddleMean::trimmed(static_cast<std::size_t>(trim)));
  }
  return nullptr;
}

int RoundOptions::asked(int wanted) const {
  // 100 x 1.1 is 110, though it is a little more in binary.
  return static_cast<int>(std::ceil(static_cast<double>(wanted) * over_selection * (1 - 1e-12)));
}

int RoundOptions::updates_needed() const {
  return min_updates > 0 ? min_updates : (cohort * 4 + 4) / 5;
}

void Job::bind(config::Binder& binder) {
  binder.bind("", job);
  binder.bind("model", training.model);
  binder.bind("trainer", training.trainer);
  binder.take_table("trainer", "settings");
  binder.bind("train", training.train);
  binder.bind("strategy", training.strategy);
  binder.bind("strategy", server);
  binder.bind("round", round);
  binder.bind("aggregation", aggregation);
  binder.bind("evaluate", evaluate);
  binder.bind("stop", stop);
  binder.bind("checkpoint", checkpoint);
  binder.bind("fallback", fallback);
  binder.bind("data", data);
  binder.bind("data", training.data);
}

update::Bounds Job::bounds() const {
  return {.value_max = round.value_max,
          .weight_max = round.weight_max,
          .contributions_max = static_cast<std::uint32_t>(round.asked())};
}

namespace {

Result<void> check_names(const Job& job) {
  const client::DataShape& shape = job.training.data;
  STARLING_TRY(shape.check_names());
  if (shape.columns.empty() && shape.class_names.empty()) return {};
  const bool by_name = job.data.match == kMatchNames;
  if (by_name && !job.fallback.enabled()) return {};
  return wrong_setting(
      "setting-invalid",
      fmt::format("data.columns and data.class-names have no meaning with {}",
                  by_name ? "fallback.topology: clients that train on by gossip take their "
                            "columns by position and their classes by number"
                          : "data.match = \"position\""));
}

Result<void> check_scale(const Job& job) {
  STARLING_TRY(job.training.data.check_scaling());
  if (!job.training.data.scales()) return {};
  if (job.training.model.is_external()) {
    return wrong_setting("setting-invalid",
                         "data.scale has no meaning with model.kind = \"external\": custom "
                         "trainers read their rows themselves, and have to scale them");
  }
  if (job.fallback.enabled()) {
    return wrong_setting("setting-invalid",
                         "data.scale has no meaning with fallback.topology: clients that train on "
                         "by gossip take their rows as they stand");
  }
  return {};
}

// A model that the coordinator cannot compute with, and does not need rows for.
Result<void> check_external(const Job& job) {
  const client::TrainingSettings& training = job.training;
  STARLING_TRY(client::check_settings(training.trainer, training.model));
  if (!training.model.is_external()) {
    if (!job.evaluate.by_trainer()) return {};
    return wrong_setting("setting-invalid",
                         fmt::format("evaluate.dataset = \"trainer\" is for model.kind = "
                                     "\"external\", and '{}' is built in: name a data set",
                                     training.model.kind));
  }
  if (job.evaluate.on_dataset() && !job.evaluate.by_trainer()) {
    return wrong_setting(
        "setting-invalid",
        "evaluate.dataset must be \"trainer\" with model.kind = \"external\", which the "
        "coordinator cannot compute with itself: its trainer evaluates such a model then, or let "
        "clients do it, evaluate.federated-every = 1");
  }
  if (job.fallback.enabled()) {
    return wrong_setting("setting-invalid",
                         "fallback.topology needs a model that is built in, and model.kind = "
                         "\"external\"");
  }
  return {};
}

}  // namespace

Result<void> Job::validate(const strategy::Catalogue& strategies) const {
  if (job.name.empty() || job.name.size() > update::kNameBytesMax) {
    return wrong_setting("setting-invalid",
                         fmt::format("name must have 1 to {} characters", update::kNameBytesMax));
  }
  if (round.min_updates > round.cohort) {
    return wrong_setting(
        "setting-invalid",
        fmt::format("round.min-updates = {} exceeds round.cohort = {}: a round closes "
                    "with cohort updates",
                    round.min_updates, round.cohort));
  }
  if (round.asked() > 1'000'000) {
    return wrong_setting("setting-invalid", "round.cohort x round.over-selection exceeds 1000000");
  }
  if (aggregation.norm_max != kNormMaxOfStrategy) {
    STARLING_TRY(NormBound::parse(aggregation.norm_max));
  }
  STARLING_TRY(validate_fallback(*this));
  STARLING_TRY(check_names(*this));
  STARLING_TRY(check_scale(*this));
  STARLING_TRY(check_external(*this));
  STARLING_TRY(train::validate(training.train));
  STARLING_TRY(strategies.check(training.strategy, training.train, static_cast<Round>(job.rounds)));
  STARLING_TRY(check_rule(*this, strategies));
  STARLING_TRY(check_fallback_strategy(*this, strategies));
  return check_stopping(*this);
}

Result<void> check_new_job(const Job& job, const strategy::Catalogue& strategies) {
  STARLING_TRY(check_weight(job, strategies));
  const AggregationOptions& options = job.aggregation;
  if (job.evaluate.federated_every == 0 || job.evaluations_wanted() >= options.updates_min()) {
    return {};
  }
  return wrong_setting(
      "setting-invalid",
      fmt::format(
          "aggregation.trim = {} applies to evaluations too and needs more than {} clients, "
          "and evaluate.federated-cohort is {}: lower the one or raise the other",
          options.trim, 2 * options.trim, job.evaluate.federated_cohort));
}

Result<void> check_stop_dataset(const Job& job) {
  if (job.evaluate.on_dataset() || !job.stop.enabled() || job.stop.is_federated()) return {};
  return wrong_setting(
      "setting-invalid",
      "stop.metric = '" + job.stop.metric + "' needs evaluate.dataset, and evaluate.every above 0");
}

Result<Job> read_job(std::string_view toml, std::string_view source) {
  Job job;
  config::Binder binder;
  job.bind(binder);
  STARLING_TRY(binder.read_toml(toml, source));
  return job;
}

Result<Job> parse_job(std::string_view toml, std::string_view source,
                      const strategy::Catalogue& strategies) {
  STARLING_ASSIGN(Job job, read_job(toml, source));
  job.training.data.complete();
  STARLING_TRY(job.validate(strategies));
  return job;
}

}  // namespace starling::coordinator
