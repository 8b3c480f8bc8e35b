// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/d2.h"

#include <algorithm>

namespace starling::gossip {

template <class T>
D2<T>::D2(std::span<const T> model)
    : x_(model.begin(), model.end()), v_(model.size()), correction_(model.size()) {}

template <class T>
Result<double> D2<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase, const Links&) {
  std::ranges::copy(x_, v_.begin());
  STARLING_ASSIGN(const double loss, training.steps(v_, phase.rate, phase.steps));
  whole_ = phase.rate * phase.steps;
  for (std::size_t i = 0; i < v_.size(); ++i) v_[i] += static_cast<T>(whole_ * correction_[i]);
  message_.first = v_;
  return loss;
}

template <class T>
const Message<T>& D2<T>::message(std::size_t) const {
  return message_;
}

template <class T>
void D2<T>::absorb(const Links&, std::span<const Received<T>> inbox, Columns columns) {
  const MixTerms<T>& terms = terms_of(inbox);
  const double factor = whole_ > 0 ? 1 / whole_ : 0;
  for_parts(columns, [&](Columns part) {
    double flow[kFlowColumns];
    mix_flow_wide<T>(terms, v_.data(), flow, part);
    for (std::size_t i = part.begin; i < part.end; ++i) {
      x_[i] = static_cast<T>(static_cast<double>(v_[i]) + flow[i - part.begin]);
      correction_[i] += flow[i - part.begin] * factor;
    }
  });
}

template <class T>
void D2<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
  std::ranges::fill(correction_, 0);
}

template <class T>
void D2<T>::regroup(const Plan&, const Links&, const LocalPhase* trained) {
  if (trained != nullptr) {
    for (std::size_t i = 0; i < v_.size(); ++i) v_[i] -= static_cast<T>(whole_ * correction_[i]);
  }
  std::ranges::fill(correction_, 0);
}

template class D2<float>;
template class D2<double>;

}  // namespace starling::gossip
