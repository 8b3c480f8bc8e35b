// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/diloco_all.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::gossip {

template <class T>
DilocoAll<T>::DilocoAll(double outer_rate, double outer_momentum, std::span<const T> model)
    : rate_(outer_rate),
      momentum_(outer_momentum),
      theta_(model.begin(), model.end()),
      local_(model.size()),
      buffer_(model.size()) {}

template <class T>
Result<double> DilocoAll<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase,
                                   const Links&) {
  std::ranges::copy(theta_, local_.begin());
  STARLING_ASSIGN(const double loss, training.steps(local_, phase.rate, phase.steps));
  message_.first = local_;
  return loss;
}

template <class T>
const Message<T>& DilocoAll<T>::message(std::size_t) const {
  return message_;
}

// theta - eta_o (Delta + mu b) is written as mean + ((1 - eta_o) Delta - eta_o mu b): with eta_o =
// 1 and mu = 0 that is the mean itself.
template <class T>
void DilocoAll<T>::absorb(const Links&, std::span<const Received<T>> inbox, Columns columns) {
  STARLING_CHECK(inbox.size() == 1);
  const T* const mean =
      inbox[0].message == nullptr ? local_.data() : inbox[0].message->first.data();
  const T momentum = static_cast<T>(momentum_), short_of = static_cast<T>(1 - rate_);
  const T carry = static_cast<T>(rate_ * momentum_);
  for (std::size_t i = columns.begin; i < columns.end; ++i) {
    const T delta = theta_[i] - mean[i];
    buffer_[i] = momentum * buffer_[i] + delta;
    theta_[i] = mean[i] + (short_of * delta - carry * buffer_[i]);
  }
}

template <class T>
void DilocoAll<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, theta_.begin());
  std::ranges::fill(buffer_, T{0});
}

template class DilocoAll<float>;
template class DilocoAll<double>;

}  // namespace starling::gossip
