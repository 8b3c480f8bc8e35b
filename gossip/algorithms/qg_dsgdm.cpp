// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/qg_dsgdm.h"

#include <algorithm>

namespace starling::gossip {

template <class T>
QgDsgdm<T>::QgDsgdm(double momentum, const RobustOptions& robust, std::span<const T> model)
    : momentum_(momentum),
      x_(model.begin(), model.end()),
      half_(model.size()),
      buffer_(model.size()),
      robust_(robust) {}

template <class T>
Result<double> QgDsgdm<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase,
                                 const Links&) {
  std::ranges::copy(x_, half_.begin());
  const T pull = static_cast<T>(phase.rate * momentum_);
  double loss = 0;
  for (int k = 0; k < phase.steps; ++k) {
    STARLING_ASSIGN(const double of_step, training.step(half_, phase.rate));
    loss += of_step;
    for (std::size_t i = 0; i < half_.size(); ++i) half_[i] -= pull * buffer_[i];
  }
  whole_ = phase.rate * phase.steps;
  message_.first = half_;
  return loss;
}

template <class T>
const Message<T>& QgDsgdm<T>::message(std::size_t) const {
  return message_;
}

template <class T>
void QgDsgdm<T>::absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) {
  MixTerms<T>& terms = terms_of(inbox);
  if (robust_.is_on()) robust_.bound(terms, half_, robust_.bad_weight(links));
  const T keep = static_cast<T>(whole_ > 0 ? momentum_ : 1);
  const T factor = static_cast<T>(whole_ > 0 ? (1 - momentum_) / whole_ : 0);
  for_parts(columns, [&](Columns part) {
    T flow[kFlowColumns];
    mix_flow<T>(terms, half_.data(), flow, part);
    for (std::size_t i = part.begin; i < part.end; ++i) {
      const T next = half_[i] + flow[i - part.begin];
      buffer_[i] = keep * buffer_[i] + factor * (x_[i] - next);
      x_[i] = next;
    }
  });
}

template <class T>
void QgDsgdm<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
  std::ranges::fill(buffer_, T{0});
}

template class QgDsgdm<float>;
template class QgDsgdm<double>;

}  // namespace starling::gossip
