// SPDX-License-Identifier: Apache-2.0
// A small job's options, as programs describe theirs.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/settings.h"

namespace starling::config::testing {

inline constexpr std::array<std::string_view, 3> kOptimizers = {"sgd", "momentum", "adam"};

struct JobOptions {
  std::string name = "unnamed";
  std::uint64_t seed = 1;
};

template <class Visitor>
void describe(Visitor& visit, JobOptions& o) {
  visit("name", o.name, FieldInfo{.help = "shown in lists"});
  visit("seed", o.seed, FieldInfo{.help = "of all randomness | of the run"});
}

struct TrainOptions {
  int local_epochs = 2;
  double learning_rate = 0.1;
  std::string optimizer = "sgd";
  std::vector<int> hidden = {200, 200};
  std::vector<float> rates = {0.5, 2};
  bool shuffle = true;
  std::optional<int> local_steps;
};

template <class Visitor>
void describe(Visitor& visit, TrainOptions& o) {
  visit("local-epochs", o.local_epochs,
        FieldInfo{.help = "passes over the data", .unit = "epochs", .min = 1, .max = 1000});
  visit("learning-rate", o.learning_rate, FieldInfo{.help = "step size", .min = 0});
  visit("optimizer", o.optimizer, FieldInfo{.help = "local steps", .choices = kOptimizers});
  visit("hidden", o.hidden, FieldInfo{.help = "widths of layers", .min = 1, .max = 65536});
  visit("rates", o.rates, FieldInfo{.help = "of layers", .min = 0});
  visit("shuffle", o.shuffle, FieldInfo{.help = "every epoch"});
  visit("local-steps", o.local_steps, FieldInfo{.help = "instead of epochs", .min = 1});
}

struct RoundOptions {
  Duration deadline = std::chrono::seconds(60);
  std::uint64_t seed = 5;
};

template <class Visitor>
void describe(Visitor& visit, RoundOptions& o) {
  visit("deadline", o.deadline, FieldInfo{.help = "of a round", .min = 0.001, .max = 86400});
  visit("seed", o.seed, FieldInfo{.help = "of the cohort"});
}

struct AllOptions {
  JobOptions job;
  TrainOptions train;
  RoundOptions round;

  template <class Binder>
  void bind(Binder& binder) {
    binder.bind("", job);
    binder.bind("train", train);
    binder.bind("round", round);
  }
};

}  // namespace starling::config::testing
