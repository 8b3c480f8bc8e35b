// SPDX-License-Identifier: Apache-2.0
// A simulated network as a user describes it: the keys, defaults and ranges of NET.toml.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/base/settings.h"
#include "core/client/training_settings.h"
#include "core/config/binder.h"
#include "core/data/hold_out.h"
#include "core/model/model_spec.h"
#include "core/sim/network.h"
#include "core/sim/population.h"
#include "core/train/train_options.h"
#include "gossip/algorithms/algorithm_options.h"
#include "gossip/algorithms/robust_options.h"
#include "gossip/training/attack_options.h"
#include "gossip/training/step_schedule.h"

namespace starling::gossip {

struct RunOptions {
  std::uint64_t seed = 1;
  std::uint64_t steps = 1000;
  Duration virtual_time{};
};

struct NetTopologyOptions {
  std::string spec = "exponential";
  std::uint32_t nodes = 16;
  std::string mixing = "own";
  std::uint64_t seed = 0;
};

// The keys of train::TrainOptions that mean something here, and the synchronization period.
struct NetTrainOptions {
  train::TrainOptions train;
  std::uint64_t local_steps_from = 0;

  NetTrainOptions() { train.local_steps = 1; }
  // H: local steps before the next mixing, at local step `step`.
  int period_at(std::uint64_t step) const {
    return step < local_steps_from ? 1 : train.local_steps;
  }
};

struct NetDataOptions {
  std::string dataset = "fashion-mnist:/usr/share/datasets/fashion-mnist";
  std::string partition = "iid";
  std::vector<std::string> columns;
};

struct NetEvaluateOptions {
  std::uint64_t every = 0;
  std::uint32_t nodes = 64;
  std::string dataset = "auto";
  double hold_out = data::kHoldOut;
};

struct NetOptions {
  RunOptions run;
  NetTopologyOptions topology;
  AlgorithmOptions algorithm;
  RobustOptions robust;
  NetTrainOptions train;
  model::ModelSpec model;
  NetDataOptions data;
  client::TrainerSettings trainer;
  NetEvaluateOptions evaluate;
  sim::NetworkOptions network;
  sim::NodeOptions nodes;
  AttackOptions attack;

  NetOptions() { model.kind = "softmax-regression"; }
  // Binds every key to this object, which must outlive the binder's use.
  void bind(config::Binder& binder);
  Settings settings() const;  // every key
  // What devices are told of the network: every key, without [attack], which is simulated, and
  // without later keys at their defaults, which devices of an earlier version do not know.
  Settings device_settings() const;
  // What the ranges of single keys cannot say.
  [[nodiscard]] Result<void> validate() const;
  // Local steps between two evaluations.
  std::uint64_t evaluate_every() const;
  // The part of each node's rows that it does not train on: evaluate.hold-out where the rows that
  // evaluations are made on are its own, else 0. Requires: a data set that can be parsed.
  double held_out() const;
  StepSchedule schedule() const;
  // The seed that random topologies are drawn from.
  std::uint64_t topology_seed() const { return topology.seed == 0 ? run.seed : topology.seed; }
};

// Flags as people call these keys, whose last words are taken or say too little.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kNetShortNames = {
    {{"topology.spec", "topology"},
     {"topology.nodes", "nodes"},
     {"algorithm.name", "algorithm"},
     {"robust.rule", "robust"},
     {"attack.kind", "attack"},
     {"data.dataset", "dataset"},
     {"model.kind", "model"}}};

template <class V>
void describe(V& visit, RunOptions& o) {
  visit("seed", o.seed,
        FieldInfo{.help = "decides everything that is drawn: model, batches, network, failures",
                  .max = 9e18});
  visit("steps", o.steps,
        FieldInfo{.help = "local steps of every node; asynchronous algorithms: of all nodes "
                          "together, divided by the nodes",
                  .min = 1,
                  .max = 1e9});
  visit("virtual-time", o.virtual_time,
        FieldInfo{.help = "end after this much virtual time, if steps have not; 0s: no limit",
                  .min = 0,
                  .max = 1e9});
}

template <class V>
void describe(V& visit, NetTopologyOptions& o) {
  visit("spec", o.spec, FieldInfo{.help = "NAME[:KEY=VALUE,...], see topologies/README.md"});
  visit("nodes", o.nodes, FieldInfo{.help = "number of nodes", .min = 1, .max = 1e7});
  visit("mixing", o.mixing,
        FieldInfo{.help = "rule for the weights: own, metropolis, uniform, push, "
                          "max-degree or lazy"});
  visit("seed", o.seed, FieldInfo{.help = "of random topologies; 0: the run's seed", .max = 9e18});
}

template <class V>
void describe(V& visit, NetTrainOptions& o) {
  train::TrainOptions& t = o.train;
  visit("local-steps", t.local_steps,
        FieldInfo{.help = "H: local steps between two mixings", .min = 1, .max = 1e9});
  visit("local-steps-from", o.local_steps_from,
        FieldInfo{.help = "post-local switching: every step mixes before this one",
                  .unit = "steps",
                  .min = 0,
                  .max = 1e9});
  // The rest as everywhere, save what counts in rounds or epochs.
  auto others = [&visit](std::string_view name, auto& value, const FieldInfo& info) {
    if (name == "local-epochs" || name == "local-steps" || name == "warmup-rounds" ||
        name == "step-rounds") {
      return;
    }
    FieldInfo told = info;
    if (name == "schedule") told.help = "the learning rate over the steps";
    visit(name, value, told);
  };
  train::describe(others, t);
  visit("warmup-steps", t.warmup_rounds,
        FieldInfo{.help = "steps that raise the rate linearly to its full value",
                  .unit = "steps",
                  .min = 0,
                  .max = 1e9});
  visit("step-every", t.step_rounds,
        FieldInfo{.help = "step: steps between two reductions of the rate",
                  .unit = "steps",
                  .min = 1,
                  .max = 1e9});
}

template <class V>
void describe(V& visit, NetDataOptions& o) {
  visit("dataset", o.dataset, FieldInfo{.help = "what the nodes hold, KIND:PATH[:SPLIT]"});
  visit("partition", o.partition,
        FieldInfo{.help = "how it is divided among them, SCHEME[:KEY=VALUE,...]"});
  visit("columns", o.columns,
        FieldInfo{.help = "names of the features in the model's order, by which the columns of csv "
                          "files are matched; empty: columns count by position"});
}

template <class V>
void describe(V& visit, NetEvaluateOptions& o) {
  visit("every", o.every,
        FieldInfo{.help = "steps between evaluations; 0: twenty evaluations a run",
                  .unit = "steps",
                  .min = 0,
                  .max = 1e9});
  visit("nodes", o.nodes,
        FieldInfo{.help = "how many nodes' models are evaluated, drawn from the seed",
                  .min = 1,
                  .max = 1e7});
  visit(
      "dataset", o.dataset,
      FieldInfo{.help = "KIND:PATH[:SPLIT]; auto: the test split of data.dataset, or where it has "
                        "none (csv, idx without t10k files) what the nodes hold out; none"});
  visit(
      "hold-out", o.hold_out,
      FieldInfo{.help = "auto without a test split: part of each node's rows that is evaluated on "
                        "and never trained on",
                .min = 0,
                .max = 0.9});
}

}  // namespace starling::gossip
