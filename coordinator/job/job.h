// SPDX-License-Identifier: Apache-2.0
// A job: everything that decides what a run computes and how its rounds are held. Read from TOML;
// the keys, defaults and ranges stand here and nowhere else.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/aggregate/joint_rule.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/base/ids.h"
#include "core/client/training_settings.h"
#include "core/config/binder.h"
#include "core/strategy/catalogue.h"
#include "core/update/contribution.h"

namespace starling::coordinator {

struct JobOptions {
  std::string name = "run";
  std::uint64_t seed = 1;
  int rounds = 10;
};

struct RoundOptions {
  int cohort = 10;
  double over_selection = 1.0;
  int min_updates = 0;
  int wait_for = 0;
  Duration deadline = std::chrono::seconds(60);
  Duration reconnect_grace = std::chrono::seconds(30);
  Duration retry_pause = std::chrono::seconds(1);
  int attempts_max = 10;
  double value_max = 16'777'216;
  double weight_max = 16'777'216;

  // How many clients a round asks, or a phase that wants as many, and the fewest updates that
  // commit it.
  int asked() const { return asked(cohort); }
  int asked(int wanted) const;
  int updates_needed() const;
  int clients_awaited() const { return std::max(wait_for, updates_needed()); }
};

inline constexpr std::array<std::string_view, 3> kAggregationRules = {"mean", "median",
                                                                      "trimmed-mean"};
inline constexpr std::array<std::string_view, 3> kWeights = {"strategy", "rows", "uniform"};

inline constexpr std::string_view kNormMaxOfStrategy = "strategy";

struct AggregationOptions {
  std::string rule = "mean";
  int trim = 1;
  std::string weight = "strategy";
  double weight_max = 1'000'000;
  double weight_ratio_max = 10;
  std::string norm_max{kNormMaxOfStrategy};  // resolved when the run is prepared

  // Null: the weighted mean, which needs no more than a sum.
  std::unique_ptr<const aggregate::JointRule> joint_rule() const;
  // The fewest updates that the rule is defined for.
  int updates_min() const { return rule == "trimmed-mean" ? 2 * trim + 1 : 1; }
};

// In place of a data set: the coordinator's trainer has the rows.
inline constexpr std::string_view kByTrainer = "trainer";

// Of evaluate.dataset: nothing is evaluated by the coordinator, and simulate finds no rows for it.
inline constexpr std::string_view kNoDataset = "none";

struct EvaluateOptions {
  int every = 1;
  std::string dataset;
  int federated_every = 0;
  int federated_cohort = 0;

  bool by_trainer() const { return dataset == kByTrainer && every > 0; }
  // A data set or the trainer's.
  bool on_dataset() const { return !dataset.empty() && dataset != kNoDataset && every > 0; }
};

inline constexpr std::string_view kFederatedPrefix = "federated-";
inline constexpr std::array<std::string_view, 3> kStopModes = {"auto", "max", "min"};

// When a run ends before its last round.
struct StopOptions {
  std::string metric = "none";
  std::string mode = "auto";
  int patience = 5;
  double min_change = 0;

  bool enabled() const { return metric != "none"; }
  // Whether the clients' evaluations have it; else the coordinator's.
  bool is_federated() const { return metric.starts_with(kFederatedPrefix); }
  // As evaluations call it: "accuracy", "loss" or the name of a trainer's metric.
  std::string name() const { return metric.substr(is_federated() ? kFederatedPrefix.size() : 0); }
  // Empty unless the clients' evaluations have it.
  std::string federated_name() const { return is_federated() ? name() : ""; }
  bool more_is_better() const { return mode == "max" || (mode == "auto" && name() == "accuracy"); }
};

struct CheckpointOptions {
  int keep = 3;
};

// What the clients do while the coordinator is gone.
struct FallbackOptions {
  std::string topology;  // empty: they wait
  Duration after = std::chrono::seconds(30);
  int local_steps = 1;
  Duration merge_within = std::chrono::minutes(10);
  Duration lifetime = std::chrono::hours(24);

  bool enabled() const { return !topology.empty(); }
};

inline constexpr std::string_view kMatchNames = "names";
inline constexpr std::string_view kMatchPosition = "position";
inline constexpr std::array<std::string_view, 2> kMatches = {kMatchNames, kMatchPosition};

struct DataOptions {
  std::string dataset;
  std::string partition = "iid";
  std::optional<double> hold_out = std::nullopt;  // resolved when a simulation is prepared
  std::string match{kMatchNames};
};

struct Job {
  JobOptions job;
  client::TrainingSettings training;
  strategy::ServerOptions server;  // of the strategy
  RoundOptions round;
  AggregationOptions aggregation;
  EvaluateOptions evaluate;
  StopOptions stop;
  CheckpointOptions checkpoint;
  FallbackOptions fallback;
  DataOptions data;

  // Binds every key of a job to this object, which must outlive the binder's use.
  void bind(config::Binder& binder);
  // What the ranges of single keys cannot say.
  [[nodiscard]] Result<void> validate(
      const strategy::Catalogue& strategies = strategy::builtin_strategies()) const;
  update::Bounds bounds() const;
  // Of a round that asks so many, and no fewer than the rule takes.
  std::size_t updates_needed(std::size_t asked) const {
    return std::max(std::min(static_cast<std::size_t>(round.updates_needed()), asked),
                    static_cast<std::size_t>(aggregation.updates_min()));
  }
  // Of the round, and no fewer than the rule takes.
  int updates_needed() const { return std::max(round.updates_needed(), aggregation.updates_min()); }
  int clients_awaited() const {
    return std::max(round.clients_awaited(), aggregation.updates_min());
  }
  int evaluations_wanted() const {
    return evaluate.federated_cohort > 0 ? evaluate.federated_cohort : round.cohort;
  }
};

// Whether evaluations by clients can have as many results as the rule needs, and the strategy goes
// with the weights. Of jobs that are submitted or simulated only: a run that an earlier version
// began goes on.
[[nodiscard]] Result<void> check_new_job(
    const Job& job, const strategy::Catalogue& strategies = strategy::builtin_strategies());

// That what [stop] goes by is measured, of a run without a simulation's rows.
[[nodiscard]] Result<void> check_stop_dataset(const Job& job);

// What `toml` says, without validate(); `source` is what errors call the file.
[[nodiscard]] Result<Job> read_job(std::string_view toml, std::string_view source);

// Reads a whole job, which is valid.
[[nodiscard]] Result<Job> parse_job(
    std::string_view toml, std::string_view source,
    const strategy::Catalogue& strategies = strategy::builtin_strategies());

template <class V>
void describe(V& visit, JobOptions& o) {
  visit("name", o.name, FieldInfo{.help = "what people call the run"});
  visit("seed", o.seed,
        FieldInfo{.help = "decides the initial model, the cohorts and the order of batches",
                  .max = 9e18});
  visit("rounds", o.rounds, FieldInfo{.help = "rounds to commit", .min = 1, .max = 1e9});
}

template <class V>
void describe(V& visit, RoundOptions& o) {
  visit("cohort", o.cohort,
        FieldInfo{.help = "updates that a round wants", .unit = "clients", .min = 1, .max = 1e6});
  visit("over-selection", o.over_selection,
        FieldInfo{.help = "ask cohort x this, close with the first cohort updates; the same where "
                          "clients evaluate",
                  .min = 1,
                  .max = 100});
  visit("min-updates", o.min_updates,
        FieldInfo{.help = "fewer abandon the attempt, as do fewer than aggregation.rule needs; 0: "
                          "four fifths of the cohort",
                  .unit = "clients",
                  .min = 0,
                  .max = 1e6});
  visit("wait-for", o.wait_for,
        FieldInfo{.help = "clients connected before round 1, at least min-updates",
                  .unit = "clients",
                  .min = 0,
                  .max = 1e6});
  visit("deadline", o.deadline,
        FieldInfo{.help = "from the round's start to its last update", .min = 0.001, .max = 2.6e6});
  visit("reconnect-grace", o.reconnect_grace,
        FieldInfo{.help = "how long a selected client may be disconnected before it is given up; "
                          "after a restart of the coordinator at least 60s",
                  .min = 0,
                  .max = 2.6e6});
  visit("retry-pause", o.retry_pause,
        FieldInfo{.help = "between an abandoned attempt and the next", .min = 0, .max = 86400});
  visit("attempts-max", o.attempts_max,
        FieldInfo{.help = "attempts of one round before the run fails", .min = 1, .max = 1e6});
  visit("value-max", o.value_max,
        FieldInfo{.help = "largest magnitude of an update's element; a larger one is refused",
                  .min = 1e-30,
                  .max = 1e30});
  visit("weight-max", o.weight_max,
        FieldInfo{.help = "largest weight (rows) that a round can add up; a larger one is refused",
                  .min = 1,
                  .max = 1e15});
}

template <class V>
void describe(V& visit, AggregationOptions& o) {
  visit(
      "rule", o.rule,
      FieldInfo{.help = "how the updates of a round become one; median and trimmed-mean are taken "
                        "of each coordinate and count every client the same",
                .choices = kAggregationRules});
  visit("trim", o.trim,
        FieldInfo{.help = "trimmed-mean: how many of the lowest and of the highest values of each "
                          "coordinate are dropped; a round needs more than twice as many updates",
                  .unit = "clients",
                  .min = 1,
                  .max = 499'999});
  visit("weight", o.weight,
        FieldInfo{.help = "what a client counts as: its training rows, or the same as every other; "
                          "strategy: as the strategy's paper has it",
                  .choices = kWeights});
  visit("weight-max", o.weight_max,
        FieldInfo{.help = "an update counts with at most this weight, whatever rows its client has",
                  .unit = "rows",
                  .min = 1,
                  .max = 1e15});
  visit("weight-ratio-max", o.weight_ratio_max,
        FieldInfo{.help = "an update counts with at most so many times the median rows of the "
                          "clients that its round asks; 0: no such bound",
                  .min = 0,
                  .max = 1e15});
  visit("norm-max", o.norm_max,
        FieldInfo{.help = "an update of a larger Euclidean norm is refused: a norm (\"12.5\"), a "
                          "multiple of the median norm in the 5 rounds before (\"10x\"), or "
                          "\"off\"; strategy: off with fednova, scaffold and qfedavg, 10x with the "
                          "others"});
}

template <class V>
void describe(V& visit, EvaluateOptions& o) {
  visit("every", o.every,
        FieldInfo{.help = "evaluate every so many rounds, and after the last; 0: never",
                  .unit = "rounds",
                  .min = 0,
                  .max = 1e9});
  visit("dataset", o.dataset,
        FieldInfo{.help = "the coordinator's data set, KIND:PATH[:SPLIT]; with model.kind = "
                          "\"external\" the word trainer, for rows that the coordinator's own "
                          "trainer has; none: no evaluation; empty: the same, but simulate has "
                          "rows of data.dataset for it"});
  visit("federated-every", o.federated_every,
        FieldInfo{.help = "let clients evaluate the model on their held-out rows every so many "
                          "rounds, and after the last; 0: never",
                  .unit = "rounds",
                  .min = 0,
                  .max = 1e9});
  visit("federated-cohort", o.federated_cohort,
        FieldInfo{.help = "clients that evaluate; 0: as many as round.cohort",
                  .unit = "clients",
                  .min = 0,
                  .max = 1e6});
}

template <class V>
void describe(V& visit, StopOptions& o) {
  visit(
      "metric", o.metric,
      FieldInfo{.help = "end the run when this has not improved for a while, and the best model is "
                        "by it: accuracy, loss or the name of a trainer's metric, of the clients' "
                        "evaluations federated-accuracy and so on; none: run all rounds"});
  visit("mode", o.mode,
        FieldInfo{.help = "whether a larger or a smaller value is better; auto knows it of "
                          "accuracy and loss, and a trainer's metric needs max or min",
                  .choices = kStopModes});
  visit("patience", o.patience,
        FieldInfo{.help = "evaluations in a row without improvement before the run ends",
                  .unit = "evaluations",
                  .min = 1,
                  .max = 1e9});
  visit("min-change", o.min_change,
        FieldInfo{.help = "a smaller change is no improvement", .min = 0, .max = 1e9});
}

template <class V>
void describe(V& visit, CheckpointOptions& o) {
  visit(
      "keep", o.keep,
      FieldInfo{.help = "models of the last rounds to keep (first, best and last always); 0: all, "
                        "the default of `simulate`",
                .unit = "rounds",
                .min = 0,
                .max = 1e9});
}

template <class V>
void describe(V& visit, FallbackOptions& o) {
  visit(
      "topology", o.topology,
      FieldInfo{.help = "graph on which clients train on by gossip while the coordinator is gone, "
                        "NAME[:KEY=VALUE,...] as topologies/README.md; empty: they wait"});
  visit("after", o.after,
        FieldInfo{.help = "they begin once the coordinator was not heard for so long",
                  .min = 0.1,
                  .max = 86400});
  visit("local-steps", o.local_steps,
        FieldInfo{.help = "steps between two exchanges with the neighbours", .min = 1, .max = 1e6});
  visit("merge-within", o.merge_within,
        FieldInfo{.help = "what a client trained meanwhile is dropped if no round asks it within "
                          "this time of the coordinator's return",
                  .min = 1,
                  .max = 31'536'000});
  visit("lifetime", o.lifetime,
        FieldInfo{.help = "without the coordinator they go on for at most this, and a device that "
                          "was revoked unheard is taken for one of them",
                  .min = 60,
                  .max = 31'536'000});
}

template <class V>
void describe(V& visit, DataOptions& o) {
  visit("dataset", o.dataset,
        FieldInfo{.help = "simulate: the data that the clients hold, KIND:PATH[:SPLIT]"});
  visit("partition", o.partition,
        FieldInfo{.help = "simulate: how it is divided, SCHEME[:KEY=VALUE,...]"});
  visit("hold-out", o.hold_out,
        FieldInfo{.help = "simulate: part of each client's rows that is evaluated on and never "
                          "trained on; none: 0.2 with evaluate.federated-every, and without "
                          "evaluate.dataset where data.dataset has no test split (csv, idx "
                          "without t10k files), unless evaluate.every is 0, else 0",
                  .min = 0,
                  .max = 0.9});
  visit("match", o.match,
        FieldInfo{.help = "how columns of csv files are matched with those of the evaluation data "
                          "set; position: as they stand, whatever their names",
                  .choices = kMatches});
}

}  // namespace starling::coordinator
