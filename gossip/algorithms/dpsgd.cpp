// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/dpsgd.h"

#include <algorithm>

namespace starling::gossip {

template <class T>
Dpsgd<T>::Dpsgd(bool adapt_first, const RobustOptions& robust, std::span<const T> model)
    : adapt_first_(adapt_first),
      x_(model.begin(), model.end()),
      next_(model.size()),
      robust_(robust) {}

template <class T>
Result<double> Dpsgd<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase, const Links&) {
  if (!adapt_first_) std::ranges::copy(x_, next_.begin());
  STARLING_ASSIGN(const double loss,
                  training.steps(adapt_first_ ? x_ : next_, phase.rate, phase.steps));
  message_.first = x_;
  return loss;
}

template <class T>
const Message<T>& Dpsgd<T>::message(std::size_t) const {
  return message_;
}

template <class T>
void Dpsgd<T>::absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) {
  const T* const base = adapt_first_ ? x_.data() : next_.data();
  MixTerms<T>& terms = terms_of(inbox);
  if (robust_.is_on()) robust_.bound(terms, x_, robust_.bad_weight(links));
  mix<T>(terms, base, x_.data(), next_.data(), columns);
}

template <class T>
void Dpsgd<T>::conclude(const Links&, std::span<const Received<T>>) {
  std::swap(x_, next_);
}

template <class T>
void Dpsgd<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
}

template class Dpsgd<float>;
template class Dpsgd<double>;

}  // namespace starling::gossip
