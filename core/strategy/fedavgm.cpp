// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/fedavgm.h"

#include "core/strategy/parts.h"

namespace starling::strategy {
template <class T>
State<T> FedAvgMServer<T>::initial_state(std::size_t elements) const {
  return state_of<T>(kMomentum, elements);
}

template <class T>
Result<void> FedAvgMServer<T>::apply(std::span<const T> model, linalg::AlignedVector<T>& next,
                                     State<T>& state, const ServerRound& round) const {
  STARLING_ASSIGN(const std::span<T> v, vector_of(state, kMomentum, model.size()));
  STARLING_TRY(update_model(next, round.report, [&](std::size_t i, double delta) {
    v[i] = static_cast<T>(momentum_ * v[i] + delta);
    return model[i] + learning_rate_ * v[i];
  }));
  return check_finite(state);
}

template class FedAvgMServer<float>;
template class FedAvgMServer<double>;

}  // namespace starling::strategy
