// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/epidemic.h"

#include <algorithm>

namespace starling::gossip {

template <class T>
Result<double> Epidemic<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase,
                                  const Links&) {
  STARLING_ASSIGN(const double loss, training.steps(x_, phase.rate, phase.steps));
  message_.first = x_;
  return loss;
}

template <class T>
const Message<T>& Epidemic<T>::message(std::size_t) const {
  return message_;
}

template <class T>
void Epidemic<T>::absorb(const Links&, std::span<const Received<T>> inbox, Columns columns) {
  MixTerms<T>& terms = terms_of(inbox);
  const double weight = 1 / (1 + static_cast<double>(terms.weights.size()));
  std::ranges::fill(terms.weights, static_cast<T>(weight));
  if (robust_.is_on()) robust_.bound(terms, x_, robust_.bad_weight(weight));
  mix<T>(terms, x_.data(), x_.data(), next_.data(), columns);
}

template <class T>
void Epidemic<T>::conclude(const Links&, std::span<const Received<T>>) {
  std::swap(x_, next_);
}

template <class T>
void Epidemic<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
}

template class Epidemic<float>;
template class Epidemic<double>;

}  // namespace starling::gossip
