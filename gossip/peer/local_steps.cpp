// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/local_steps.h"

#include <fmt/format.h>

#include "gossip/training/builtin_trainings.h"
#include "gossip/training/network_trainers.h"

namespace starling::gossip {

LocalSteps::LocalSteps(const NetworkRun& run, const data::DatasetView& rows, Node node,
                       std::uint64_t step, std::optional<FallbackPace> pace)
    : options_(run.options.train.train), steps_(run.options.run.steps), pace_(pace) {
  auto trainings = std::make_unique<BuiltinTrainings>(run.model, options_, 1);
  trainings->add(rows, run.options.run.seed, node, step);
  trainings_ = std::move(trainings);
}

LocalSteps::LocalSteps(const NetworkRun& run, client::TrainerHost& trainer,
                       const std::string& client, std::function<void(const std::string& line)> warn)
    : options_(run.options.train.train), steps_(run.options.run.steps) {
  // The network goes on without this peer meanwhile.
  Retries retries{.attempts_max = 0, .stop = cancelled_, .warn = std::move(warn)};
  trainings_ = std::make_unique<ProcessTrainings>(training_options(run.options, run.layout()),
                                                  std::vector<client::TrainerHost*>{&trainer},
                                                  std::vector{client}, std::move(retries));
}

double LocalSteps::rate_at(std::uint64_t step) const {
  if (pace_) return train::learning_rate_at(options_, pace_->round_at(step), pace_->rounds);
  return train::learning_rate_at(options_, static_cast<Round>(step + 1),
                                 static_cast<Round>(steps_));
}

Error diverged(std::uint64_t step, const std::string& suspect) {
  if (!suspect.empty()) {
    return rejected("diverged",
                    fmt::format("the loss is not finite in step {}, after {} sent a model far from "
                                "this peer's: look after that member, or revoke it",
                                step + 1, suspect));
  }
  return rejected("diverged",
                  fmt::format("the loss is not finite in step {}: lower train.learning-rate or "
                              "set train.clip-norm",
                              step + 1));
}

}  // namespace starling::gossip
