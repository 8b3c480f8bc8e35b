// SPDX-License-Identifier: Apache-2.0
// Clients whose loss is F_k(x) = 1/2 sum_i a_i (x_i - b_i)^2, so that rounds can be computed by
// hand: the problem of every strategy's recorded values.
#pragma once

#include <vector>

#include "core/strategy/strategy.h"

namespace starling::strategy {

struct Quadratic {
  std::vector<double> a, b;
  std::uint64_t steps = 1;  // tau
  double rows = 1;          // n
};

inline const std::vector<Quadratic> kTwoClients = {
    {.a = {1, 2}, .b = {1, 0}, .steps = 3, .rows = 1},
    {.a = {3, 1}, .b = {-1, 2}, .steps = 2, .rows = 3}};

struct LocalSgd {
  double rate = 0.1;
  double momentum = 0;
};

// SGD, or heavy-ball momentum, on one such loss.
template <class T>
class QuadraticTraining final : public LocalTraining<T> {
 public:
  QuadraticTraining(Quadratic problem, LocalSgd sgd) : problem_(std::move(problem)), sgd_(sgd) {}

  Result<LocalWork> train(std::span<T> y, const train::TrainingHooks<T>& hooks) override {
    linalg::AlignedVector<T> velocity(y.size()), g(y.size());
    const bool continues = hooks.optimizer != nullptr && !hooks.optimizer->first.empty();
    if (continues) velocity = hooks.optimizer->first;
    double loss_sum = 0;
    for (std::uint64_t step = 0; step < problem_.steps; ++step) {
      loss_sum += gradient(y, g);
      if (hooks.correct) hooks.correct(y, g);
      for (std::size_t i = 0; i < y.size(); ++i) {
        velocity[i] = static_cast<T>(sgd_.momentum) * velocity[i] + g[i];
        y[i] -= static_cast<T>(sgd_.rate) * velocity[i];
      }
    }
    if (hooks.optimizer != nullptr && sgd_.momentum > 0) {
      hooks.optimizer->first = velocity;
      hooks.optimizer->steps += problem_.steps;
    }
    const auto steps = static_cast<double>(problem_.steps);
    return LocalWork{.steps = problem_.steps, .rate = sgd_.rate, .train_loss = loss_sum / steps};
  }
  Result<double> full_gradient(std::span<const T> x, std::span<T> g) override {
    return gradient(x, g);
  }
  Result<double> loss(std::span<const T> x) override {
    linalg::AlignedVector<T> unused(x.size());
    return gradient(x, unused);
  }

 private:
  double gradient(std::span<const T> x, std::span<T> g) const {
    double loss = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double way = static_cast<double>(x[i]) - problem_.b[i];
      g[i] = static_cast<T>(problem_.a[i] * way);
      loss += problem_.a[i] * way * way / 2;
    }
    return loss;
  }

  Quadratic problem_;
  LocalSgd sgd_;
};

}  // namespace starling::strategy
