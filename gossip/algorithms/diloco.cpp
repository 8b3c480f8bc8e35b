// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/diloco.h"

#include <algorithm>

namespace starling::gossip {

template <class T>
Diloco<T>::Diloco(double outer_rate, double outer_momentum, const RobustOptions& robust,
                  std::span<const T> model)
    : rate_(outer_rate),
      momentum_(outer_momentum),
      phi_(model.begin(), model.end()),
      theta_(model.size()),
      velocity_(model.size()),
      robust_(robust) {}

template <class T>
Result<double> Diloco<T>::adapt(LocalTraining<T>& training, const LocalPhase& phase, const Links&) {
  std::ranges::copy(phi_, theta_.begin());
  STARLING_ASSIGN(const double loss, training.steps(theta_, phase.rate, phase.steps));
  message_.first = theta_;
  return loss;
}

template <class T>
const Message<T>& Diloco<T>::message(std::size_t) const {
  return message_;
}

// phi + eta_o (m - phi) + mu v is written as m + (eta_o - 1) (m - phi) + mu v, m = sum_j W_ij
// theta_j: with eta_o = 1 and mu = 0 that is m itself.
template <class T>
void Diloco<T>::absorb(const Links& links, std::span<const Received<T>> inbox, Columns columns) {
  MixTerms<T>& terms = terms_of(inbox);
  if (robust_.is_on()) robust_.bound(terms, theta_, robust_.bad_weight(links));
  const T rate = static_cast<T>(rate_), beyond = static_cast<T>(rate_ - 1);
  const T momentum = static_cast<T>(momentum_);
  for_parts(columns, [&](Columns part) {
    T flow[kFlowColumns];
    mix_flow<T>(terms, theta_.data(), flow, part);
    for (std::size_t i = part.begin; i < part.end; ++i) {
      const T mean = theta_[i] + flow[i - part.begin];
      const T ahead = mean - phi_[i];
      const T carried = momentum * velocity_[i];
      velocity_[i] = carried + rate * ahead;
      phi_[i] = mean + (beyond * ahead + carried);
    }
  });
}

template <class T>
void Diloco<T>::restart(std::span<const T> model) {
  std::ranges::copy(model, phi_.begin());
  std::ranges::fill(velocity_, T{0});
}

template class Diloco<float>;
template class Diloco<double>;

}  // namespace starling::gossip
