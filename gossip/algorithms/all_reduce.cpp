// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/all_reduce.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::gossip {

template <class T>
Result<double> AllReduce<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase,
                                   const Links&) {
  STARLING_ASSIGN(const double loss, training.steps(x_, phase.rate, phase.steps));
  message_.first = x_;
  return loss;
}

template <class T>
const Message<T>& AllReduce<T>::message(std::size_t) const {
  return message_;
}

template <class T>
void AllReduce<T>::absorb(const Links&, std::span<const Received<T>> inbox, Columns columns) {
  STARLING_CHECK(inbox.size() == 1);
  const T* const mean = inbox[0].message == nullptr ? x_.data() : inbox[0].message->first.data();
  std::copy(mean + columns.begin, mean + columns.end,
            next_.begin() + static_cast<std::ptrdiff_t>(columns.begin));
}

template <class T>
void AllReduce<T>::conclude(const Links&, std::span<const Received<T>>) {
  std::swap(x_, next_);
}

template <class T>
void AllReduce<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
}

template class AllReduce<float>;
template class AllReduce<double>;

}  // namespace starling::gossip
