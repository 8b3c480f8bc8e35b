// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/gradient_tracking.h"

#include <algorithm>

namespace starling::gossip {

template <class T>
GradientTracking<T>::GradientTracking(std::span<const T> model)
    : x_(model.begin(), model.end()),
      next_(model.size()),
      z_(model.size()),
      correction_(model.size()) {}

template <class T>
Result<double> GradientTracking<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase,
                                          const Links&) {
  Vector<T>& start = next_;
  std::ranges::copy(x_, start.begin());
  double loss = 0;
  for (int k = 0; k < phase.steps; ++k) {
    STARLING_ASSIGN(const double of_step, training.step(x_, phase.rate));
    loss += of_step;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      x_[i] -= static_cast<T>(phase.rate * correction_[i]);
    }
  }
  const double whole = phase.rate * phase.steps;
  const T factor =
      static_cast<T>(whole > 0 ? 1 / whole : 0);  // at rate 0 there is nothing to track
  for (std::size_t i = 0; i < x_.size(); ++i) z_[i] = (start[i] - x_[i]) * factor;
  message_ = {.first = x_, .second = z_};
  return loss;
}

template <class T>
const Message<T>& GradientTracking<T>::message(std::size_t) const {
  return message_;
}

template <class T>
void GradientTracking<T>::absorb(const Links&, std::span<const Received<T>> inbox,
                                 Columns columns) {
  mix<T>(terms_of(inbox), x_.data(), x_.data(), next_.data(), columns);
  const MixTerms<T>& terms = terms_of(inbox, &Message<T>::second);
  for_parts(columns, [&](Columns part) {
    double flow[kFlowColumns];
    mix_flow_wide<T>(terms, z_.data(), flow, part);
    for (std::size_t i = part.begin; i < part.end; ++i) {
      correction_[i] += flow[i - part.begin];
    }
  });
}

template <class T>
void GradientTracking<T>::conclude(const Links&, std::span<const Received<T>>) {
  std::swap(x_, next_);
}

template <class T>
void GradientTracking<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, x_.begin());
  std::ranges::fill(correction_, 0);
}

template <class T>
void GradientTracking<T>::regroup(const Plan&, const Links&, const LocalPhase* trained) {
  if (trained != nullptr && trained->rate > 0) {
    for (std::size_t i = 0; i < z_.size(); ++i) z_[i] -= static_cast<T>(correction_[i]);
  }
  std::ranges::fill(correction_, 0);
}

template class GradientTracking<float>;
template class GradientTracking<double>;

}  // namespace starling::gossip
