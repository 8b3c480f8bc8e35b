// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/fednova.h"

#include "core/strategy/parts.h"

namespace starling::strategy {
namespace {

constexpr const char* kEffectiveSteps = "effective_steps";

}  // namespace

// The way of y under gradients of 1, in units of eta: also where the closed forms divide by 0.
template <class T>
Result<double> FedNovaClient<T>::effective_steps(const LocalWork& work) const {
  const double keep = 1 - work.rate * mu_;
  if (keep < 0) {
    return wrong_setting(
        "setting-invalid",
        fmt::format("fednova needs strategy.mu x learning rate of at most 1; they are "
                    "{} and {}",
                    mu_, work.rate));
  }
  double steps = 0, velocity = 0;
  for (std::uint64_t j = 0; j < work.steps; ++j) {
    velocity = momentum_ * velocity + 1;
    steps = keep * steps + velocity;
  }
  return steps;
}

template <class T>
Result<ClientResult<T>> FedNovaClient<T>::round(const ClientRound<T>& round,
                                                LocalTraining<T>& training) const {
  ClientResult<T> result;
  STARLING_TRY(train_difference(round, training, proximal_hooks(mu_, round.model), result));
  STARLING_ASSIGN(const double steps, effective_steps(result.work));
  scale<T>(result.payload, 1 / steps);
  result.scalars[kEffectiveSteps] = steps;
  return result;
}

template <class T>
std::vector<std::string> FedNovaServer<T>::scalars() const {
  return {kEffectiveSteps};
}

// Of a_k as the header has it: the proximal term makes it smaller, and a step weighs at most
// min(1 / (1 - rho), the steps up to it).
template <class T>
double FedNovaServer<T>::scalar_max(const train::TrainOptions& training,
                                    std::uint64_t steps) const {
  const auto tau = static_cast<double>(steps);
  if (training.optimizer != "momentum") return tau;
  return std::min(tau / (1 - training.momentum), tau * (tau + 1) / 2);
}

template <class T>
Result<void> FedNovaServer<T>::apply(std::span<const T> model, linalg::AlignedVector<T>& next,
                                     State<T>&, const ServerRound& round) const {
  STARLING_ASSIGN(const double steps, positive_scalar(round.report, kEffectiveSteps));
  return update_model(next, round.report, [&](std::size_t i, double direction) {
    return model[i] + learning_rate_ * steps * direction;
  });
}

template class FedNovaClient<float>;
template class FedNovaClient<double>;
template class FedNovaServer<float>;
template class FedNovaServer<double>;

}  // namespace starling::strategy
