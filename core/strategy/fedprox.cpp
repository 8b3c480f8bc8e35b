// SPDX-License-Identifier: Apache-2.0
#include "core/strategy/fedprox.h"

#include "core/strategy/parts.h"

namespace starling::strategy {

template <class T>
Result<ClientResult<T>> FedProxClient<T>::round(const ClientRound<T>& round,
                                                LocalTraining<T>& training) const {
  ClientResult<T> result;
  STARLING_TRY(train_difference(round, training, proximal_hooks(mu_, round.model), result));
  return result;
}

template class FedProxClient<float>;
template class FedProxClient<double>;

}  // namespace starling::strategy
