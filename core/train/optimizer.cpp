// SPDX-License-Identifier: Apache-2.0
#include "core/train/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace starling::train {

Optimizer::Optimizer(const TrainOptions& options, std::size_t size, const linalg::Kernels& kernels)
    : options_(options), kernels_(kernels) {
  const auto found = std::ranges::find(kOptimizers, options.optimizer);
  STARLING_CHECK(found != kOptimizers.end());
  kind_ = static_cast<Kind>(found - kOptimizers.begin());
  if (kind_ != Kind::kSgd) first_.resize(size);
  if (kind_ == Kind::kAdam || kind_ == Kind::kAdamW) second_.resize(size);
}

void Optimizer::reset() {
  std::ranges::fill(first_, 0.0F);
  std::ranges::fill(second_, 0.0F);
  steps_ = 0;
}

Result<void> Optimizer::load(const OptimizerState<float>& state) {
  const bool is_new = state.steps == 0 && state.first.empty() && state.second.empty();
  if (is_new) {
    reset();
    return {};
  }
  const bool fits = !is_plain_sgd() && state.steps > 0 && state.first.size() == first_.size() &&
                    state.second.size() == second_.size();
  if (!fits) {
    return rejected("bad-optimizer-state",
                    fmt::format("the state of an optimizer after {} steps has {} and {} values; {} "
                                "needs {} and {}",
                                state.steps, state.first.size(), state.second.size(),
                                options_.optimizer, first_.size(), second_.size()));
  }
  first_ = state.first;
  second_ = state.second;
  steps_ = state.steps;
  return {};
}

void Optimizer::step(std::span<float> parameters, std::span<const float> gradient, double rate) {
  STARLING_CHECK(parameters.size() == gradient.size());
  ++steps_;
  const auto decay = static_cast<float>(options_.weight_decay);
  switch (kind_) {
    case Kind::kSgd:
      kernels_.accumulate(parameters.data(), static_cast<float>(1 - rate * options_.weight_decay),
                          gradient.data(), static_cast<float>(-rate), parameters.size());
      return;
    case Kind::kMomentum:
    case Kind::kNesterov:
      STARLING_CHECK(parameters.size() == first_.size());
      kernels_.momentum(parameters.data(), gradient.data(), first_.data(), parameters.size(),
                        static_cast<float>(rate), static_cast<float>(options_.momentum), decay,
                        kind_ == Kind::kNesterov);
      return;
    case Kind::kAdam:
    case Kind::kAdamW:
      adam_step(parameters, gradient, rate);
      return;
  }
}

void Optimizer::adam_step(std::span<float> parameters, std::span<const float> gradient,
                          double rate) {
  STARLING_CHECK(parameters.size() == first_.size());
  const bool decoupled = kind_ == Kind::kAdamW;
  const auto t = static_cast<double>(steps_);
  const double first_correction = 1 - std::pow(options_.beta1, t);
  const double second_correction = 1 - std::pow(options_.beta2, t);
  kernels_.adam(
      {.parameters = parameters.data(),
       .gradient = gradient.data(),
       .first = first_.data(),
       .second = second_.data(),
       .size = parameters.size(),
       .first_beta = static_cast<float>(options_.beta1),
       .second_beta = static_cast<float>(options_.beta2),
       .first_gain = static_cast<float>(1 - options_.beta1),
       .second_gain = static_cast<float>(1 - options_.beta2),
       .epsilon = static_cast<float>(options_.epsilon),
       .step = static_cast<float>(rate / first_correction),
       .second_correction = static_cast<float>(1 / std::sqrt(second_correction)),
       .decay = decoupled ? 0 : static_cast<float>(options_.weight_decay),
       .decoupled = decoupled ? static_cast<float>(1 - rate * options_.weight_decay) : 1});
}

}  // namespace starling::train
