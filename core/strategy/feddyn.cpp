// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/feddyn.h"

#include "core/strategy/parts.h"

namespace starling::strategy {
namespace {

constexpr const char* kGradient = "gradient";

}  // namespace

template <class T>
Result<ClientResult<T>> FedDynClient<T>::round(const ClientRound<T>& round,
                                               LocalTraining<T>& training) const {
  const std::span<const T> x = round.model;
  STARLING_ASSIGN(linalg::AlignedVector<T> own, remembered(round.state, kGradient, x.size()));
  const auto correct = [&](std::span<const T> y, std::span<T> g) {
    const T alpha = static_cast<T>(alpha_);
    for (std::size_t i = 0; i < g.size(); ++i) g[i] += alpha * (y[i] - x[i]) - own[i];
  };
  ClientResult<T> result;
  STARLING_TRY(train_difference(round, training, {.correct = correct}, result));
  for (std::size_t i = 0; i < x.size(); ++i) {
    own[i] = static_cast<T>(own[i] - alpha_ * result.payload[i]);
  }
  result.state.vectors[kGradient] = std::move(own);
  return result;
}

template <class T>
State<T> FedDynServer<T>::initial_state(std::size_t elements) const {
  return state_of<T>(kGradient, elements);
}

template <class T>
Result<void> FedDynServer<T>::apply(std::span<const T> model, linalg::AlignedVector<T>& next,
                                    State<T>& state, const ServerRound& round) const {
  STARLING_ASSIGN(const std::span<T> h, vector_of(state, kGradient, model.size()));
  const double share = participation(round);
  STARLING_TRY(update_model(next, round.report, [&](std::size_t i, double delta) {
    h[i] = static_cast<T>(h[i] - alpha_ * share * delta);
    return model[i] + learning_rate_ * (delta - h[i] / alpha_);
  }));
  return check_finite(state);
}

template class FedDynClient<float>;
template class FedDynClient<double>;
template class FedDynServer<float>;
template class FedDynServer<double>;

}  // namespace starling::strategy
