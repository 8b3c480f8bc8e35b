// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/fedavg.h"

#include "core/strategy/parts.h"

namespace starling::strategy {

template <class T>
Result<ClientResult<T>> FedAvgClient<T>::round(const ClientRound<T>& round,
                                               LocalTraining<T>& training) const {
  ClientResult<T> result;
  STARLING_TRY(train_difference(round, training, {}, result));
  return result;
}

template <class T>
Result<void> FedAvgServer<T>::apply(std::span<const T> model, linalg::AlignedVector<T>& next,
                                    State<T>&, const ServerRound& round) const {
  return update_model(next, round.report, [&](std::size_t i, double delta) {
    return static_cast<double>(model[i]) + learning_rate_ * delta;
  });
}

template class FedAvgClient<float>;
template class FedAvgClient<double>;
template class FedAvgServer<float>;
template class FedAvgServer<double>;

}  // namespace starling::strategy
